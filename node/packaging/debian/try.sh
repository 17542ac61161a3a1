#!/usr/bin/env bash
# Installs a package, runs its program and its configuration, and purges it again. It changes this
# machine, so it asks for that: TRY_ON_THIS_MACHINE=yes node/packaging/debian/try.sh doyen.deb
set -euo pipefail
package=$1
fail() {
    echo "$1" >&2
    exit 1
}
if ! command -v dpkg > /dev/null; then
    echo "NOT CHECKED: the Debian package, because there is no dpkg" >&2
    exit
fi
bytes=$(stat -c %s "$package")
[ "$bytes" -lt 8000000 ] || fail "$package has $bytes bytes, which is more than 8 MB"
# What dpkg would install, without installing it.
listed=$(dpkg-deb --contents "$package")
for path in usr/bin/doyen usr/lib/systemd/system/doyen.service etc/doyen/doyen.toml \
    usr/share/man/man1/doyen.1.gz usr/share/man/man1/doyen-run.1.gz \
    usr/share/bash-completion/completions/doyen usr/share/zsh/vendor-completions/_doyen \
    usr/share/fish/vendor_completions.d/doyen.fish usr/share/doc/doyen/copyright; do
    grep -q " \./$path$" <<< "$listed" || fail "$package lacks $path"
done
[ "$(dpkg-deb --info "$package" conffiles)" = /etc/doyen/doyen.toml ] || fail "no conffile"
if [ "$(id -u)" != 0 ] || [ "${TRY_ON_THIS_MACHINE:-}" != yes ]; then
    echo "NOT CHECKED: installing and purging, which needs root and TRY_ON_THIS_MACHINE=yes" >&2
    exit
fi
if dpkg-query --show doyen > /dev/null 2>&1; then
    fail "doyen is installed on this machine already"
fi

dpkg --install "$package"
trap 'dpkg --purge doyen > /dev/null 2>&1 || true' EXIT
[ "$(stat -c '%U:%G %a' /etc/doyen)" = "root:doyen 750" ] || fail "/etc/doyen is open"
doyen version
if pgrep -u doyen > /dev/null; then
    fail "an unconfigured node was started"
fi
# As an operator does: a secret, a password, and the configuration with this machine's own values.
doyen secret new --dir /etc/doyen > /dev/null
echo a-long-random-password > /etc/doyen/password
chown root:doyen /etc/doyen/member /etc/doyen/password
chmod 640 /etc/doyen/member /etc/doyen/password
sed -i 's/^seed = .*/listen = "127.0.0.1:0"\ndata = "127.0.0.1:0"/; s/"0\.0\.0\.0:[0-9]*"/"127.0.0.1:0"/' \
    /etc/doyen/doyen.toml
# What the unit starts, as the user of the unit. (systemd itself does not run everywhere.)
start=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/doyen.service)
user=$(sed -n 's/^User=//p' /usr/lib/systemd/system/doyen.service)
# shellcheck disable=SC2086
coproc NODE { exec setpriv --reuid "$user" --regid "$user" --clear-groups $start; }
pid=$NODE_PID
read -r -t 60 ready <&"${NODE[0]}" || fail "the node did not start"
http=$(grep -o ' http=[^ ]*' <<< "$ready" | cut -d= -f2)
until doyen status --http "$http" --secret-file /etc/doyen/operator | grep safe; do sleep 0.2; done
kill -TERM "$pid"
wait "$pid" || fail "the node left with status $?"

# The operator's change stays through a removal, and goes with a purge.
dpkg --remove doyen
[ -f /etc/doyen/doyen.toml ] || fail "the configuration went with the package"
rm /etc/doyen/{member,client,operator,password,ca.pem}
dpkg --purge doyen
trap - EXIT
for path in /etc/doyen /usr/bin/doyen /usr/lib/systemd/system/doyen.service; do
    [ ! -e "$path" ] || fail "$path is left"
done
if getent passwd doyen > /dev/null; then
    fail "the user is left"
fi
echo "installed, run and purged: $bytes bytes"
