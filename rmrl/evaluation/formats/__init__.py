"""Published benchmarks' layouts, one file each behind a table."""

from rmrl.evaluation.formats.all_formats import FORMATS
from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Format, Judged

__all__ = ["FORMATS", "Fields", "Format", "Judged"]
