#!/usr/bin/env bash
# Builds the documentation site into build/site with Zensical, in an environment of its own
# (.venv-docs). mkdocs.yml is its configuration.
# Broken links, missing pages and unknown names of the API reference end it with an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv-docs
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
packages=$("$python" - <<'PYTHON'
import tomllib

with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["project"]["optional-dependencies"]["docs"]))
PYTHON
)
if [[ ! -f $venv/packages || $(cat "$venv/packages") != "$packages" ]]; then
    "$python" -m venv "$venv"
    mapfile -t list <<<"$packages"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${list[@]}"
    printf '%s\n' "$packages" >"$venv/packages"
fi

"$venv/bin/python" scripts/stage_docs.py build/pages
"$venv/bin/zensical" build --strict --clean --config-file mkdocs.yml
echo "the site is in build/site/index.html"
