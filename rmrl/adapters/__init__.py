"""rmrl's rewards inside other trainers, one file per library; docs/adapters.md has the table.

None of these modules imports the library it is for: they follow its calling convention.
"""
