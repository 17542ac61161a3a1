#!/usr/bin/env bash
# Makes what a release has, in target/release-files: the program with what belongs to it, the Debian
# package, the chart, the list of all that was built in (SBOM), and checksums. The program is the
# static one that `just static` built from the commit that is checked out.
# It needs cargo-deb, cargo-cyclonedx and helm.
set -euo pipefail
cd "$(dirname "$0")/../.."
triple=$1
built=${CARGO_TARGET_DIR:-target}/$triple/dist
into=${CARGO_TARGET_DIR:-target}/release-files
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
commit=$(git rev-parse --short=12 HEAD)
fail() {
    echo "no release: $1" >&2
    exit 1
}

[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
grep -q "^## \[$version\]" CHANGELOG.md || fail "CHANGELOG.md has no section [$version]"
grep -q "^version: $version$" node/packaging/helm/doyen/Chart.yaml || fail "the chart has another version"
grep -q "^appVersion: $version$" node/packaging/helm/doyen/Chart.yaml || fail "the chart is for another version"
"$built/doyen" version | grep -q "^commit: $commit$" || fail "the program is of another commit: run \`just static\`"

rm -rf "$into"
mkdir -p "$into"
name=doyen-$version-$triple
files=$(mktemp -d)
trap 'rm -r "$files"' EXIT
mkdir "$files/$name"
"$built/doyen" man "$files/$name/man1"
for shell in bash zsh fish; do
    "$built/doyen" completions $shell > "$files/$name/doyen.$shell"
done
cp "$built/doyen" LICENSE README.md CHANGELOG.md examples/doyen.toml node/alerts.yml \
    node/packaging/systemd/doyen.service node/packaging/kubernetes/doyen.yaml "$files/$name"
# The same bytes whenever it is made.
tar --create --gzip --file "$into/$name.tar.gz" --directory "$files" --sort=name --owner=0 \
    --group=0 --numeric-owner --mtime="$(git show --no-patch --format=%cI HEAD)" "$name"

cp "$(node/packaging/debian/build.sh "$triple" | tail -n 1)" "$into"
helm package --destination "$into" node/packaging/helm/doyen > /dev/null
cargo cyclonedx --manifest-path node/cli/Cargo.toml --format json --target "$triple" \
    --override-filename "$name.cdx" --quiet
# It writes a list beside each crate of the workspace that the program has.
mv "node/cli/$name.cdx.json" "$into"
find . -path ./target -prune -o -name "$name.cdx.json" -exec rm {} +
(cd "$into" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
