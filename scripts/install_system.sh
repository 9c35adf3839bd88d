#!/usr/bin/env bash
# Installs what some tests need of the system: Chromium for those of the report, bubblewrap for those of code that a model wrote, curl for those of the documents.
# Goes on where it cannot; the tests are skipped there, with their reason.
set -uo pipefail

say() { printf '[system] %s\n' "$*"; }

# A program, and Debian's package of it.
needed=(chromium:chromium bwrap:bubblewrap curl:curl)
packages=()
for pair in "${needed[@]}"; do
    command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
done
if ((${#packages[@]} == 0)); then
    say "Chromium, bubblewrap and curl are installed"
elif ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    say "not installed, and only root may do it, with apt-get: ${packages[*]}"
else
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    for package in "${packages[@]}"; do
        # The lists of a fresh machine are empty or old.
        if timeout 300 apt-get install -y --no-install-recommends "$package" >>"$log" 2>&1 ||
            { timeout 120 apt-get update >>"$log" 2>&1 && timeout 300 apt-get install -y --no-install-recommends "$package" >>"$log" 2>&1; }; then
            say "installed $package"
        else
            say "apt-get cannot install $package ($(tail -n 1 "$log")); the tests that need it are skipped"
        fi
    done
    rm -f "$log"
fi
