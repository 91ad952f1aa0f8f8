#!/bin/sh
# Installs llamad as a service of systemd, upgrades it (run it again) or removes it. `install.sh --help` has the options.
# Every release is an environment of its own below PREFIX/releases, and PREFIX/current names the one that starts next.
set -eu
umask 022

PREFIX=/opt/llamad
UNITS=/usr/local/lib/systemd/system
ADMIN_UNITS=/etc/systemd/system
CONFIG=/etc/llamad
PYTHON=${PYTHON:-python3}

HERE=$(cd "$(dirname "$0")" && pwd)
WHEEL=
WHEELS=
WITH=
RESTART=yes
ACTION=install
PURGE=no
SCRATCH=
NEW=

usage() {
    cat <<'END'
Usage: install.sh [--wheel FILE] [--wheels DIR] [--with NAME]... [--prefix DIR] [--python PROGRAM] [--no-restart]
       install.sh --uninstall [--purge] [--prefix DIR]

Installs llamad as a service of systemd. Run it again to upgrade: services that run are restarted, one after another.

  --wheel FILE      install this wheel; without it one is built from the checkout that this script is in, which takes
                    minutes (LLAMAD_CMAKE_ARGS=-DGGML_CUDA=ON in the environment builds for a GPU)
  --wheels DIR      take what llamad depends on from the wheels in this folder, not from the package index
  --with NAME       add a drop-in to the units: gpu, keys (/etc/llamad/keys, made if missing) or
                    tls (/etc/llamad/tls.crt and tls.key); may be repeated
  --prefix DIR      where releases are kept (/opt/llamad)
  --python PROGRAM  Python 3.11 or newer (python3)
  --no-restart      leave running services on the old release until their next restart
  --uninstall       stop and remove services, units and releases; configuration, states, downloads and user stay
  --purge           with --uninstall: remove those, too
END
}

say() { printf '%s\n' "$*"; }

die() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

wrong() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 2
}

# What was begun is not left behind; the release that was there still is.
clean_up() {
    if [ -n "$SCRATCH" ]; then rm -rf "$SCRATCH"; fi
    if [ -n "$NEW" ]; then rm -rf "$NEW"; fi
}

read_options() {
    while [ $# -gt 0 ]; do
        case $1 in
            --wheel | --wheels | --with | --prefix | --python)
                if [ $# -lt 2 ] || [ -z "$2" ]; then wrong "$1 needs a value"; fi
                ;;
        esac
        case $1 in
            --wheel) WHEEL=$2; shift ;;
            --wheels) WHEELS=$2; shift ;;
            --with) WITH="$WITH $2"; shift ;;
            --prefix) PREFIX=${2%/}; shift ;;
            --python) PYTHON=$2; shift ;;
            --no-restart) RESTART=no ;;
            --uninstall) ACTION=uninstall ;;
            --purge) PURGE=yes ;;
            -h | --help) usage; exit 0 ;;
            *) wrong "unknown option $1; see --help" ;;
        esac
        shift
    done
}

# Everything that can be known before anything changes.
check() {
    case $PREFIX in
        *[!A-Za-z0-9/._-]*) wrong "--prefix $PREFIX: only letters, digits and / . _ - are possible" ;;
        /*) ;;
        *) wrong "--prefix must be an absolute path, not ${PREFIX:-/}" ;;
    esac
    if [ "$ACTION" = uninstall ]; then
        [ -z "$WHEEL$WHEELS$WITH" ] || wrong "--uninstall installs nothing: leave out --wheel, --wheels and --with"
    elif [ "$PURGE" = yes ]; then
        wrong "--purge belongs to --uninstall"
    fi
    for name in $WITH; do
        case $name in
            gpu | keys | tls) ;;
            *) wrong "--with $name: there is gpu, keys and tls" ;;
        esac
    done
    if [ -n "$WHEEL" ] && [ ! -f "$WHEEL" ]; then die "--wheel $WHEEL: no such file"; fi
    if [ -n "$WHEELS" ] && [ ! -d "$WHEELS" ]; then die "--wheels $WHEELS: no such folder"; fi
    [ "$(id -u)" = 0 ] || die "must be run by root: it makes a user, units and folders"
    command -v systemctl >/dev/null || die "there is no systemctl: this machine does not run systemd"
    if [ "$ACTION" = install ]; then check_python; fi
}

check_python() {
    command -v "$PYTHON" >/dev/null || die "there is no $PYTHON: install Python 3.11 or newer, or name one with --python"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "$("$PYTHON" --version) is too old: name Python 3.11 or newer with --python"
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || die "$PYTHON makes no environments: install python3-venv"
}

make_user() {
    if getent passwd llamad >/dev/null; then return; fi
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin llamad
    say "made the user llamad"
}

# Sets WHEEL.
build_wheel() {
    [ -f "$HERE/../pyproject.toml" ] || die "there is no checkout around this script: name a wheel with --wheel"
    say "building a wheel of $(cd "$HERE/.." && pwd)"
    "$PYTHON" -m venv "$SCRATCH/build"
    LLAMAD_NATIVE=${LLAMAD_NATIVE:-1} LLAMAD_WHEELS=${WHEELS:-${LLAMAD_WHEELS:-}} \
        "$SCRATCH/build/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$SCRATCH/wheel" "$@" "$HERE/.."
    WHEEL=$(echo "$SCRATCH"/wheel/llamad-*.whl)
}

# An environment cannot be moved, so each is made in its place and becomes current when it is complete.
make_release() {
    mkdir -p "$PREFIX/releases"
    release=$PREFIX/releases/$(date -u +%Y%m%d-%H%M%S)
    mkdir "$release" || die "another install.sh is running; try again"
    NEW=$release
    say "installing $(basename "$WHEEL") in $NEW"
    "$PYTHON" -m venv "$NEW"
    "$NEW/bin/python" -m pip install --quiet --disable-pip-version-check "$@" "$WHEEL"
    "$NEW/bin/llamad" --version || die "the new release does not run; nothing was changed"
}

switch_release() {
    ln -s "releases/$(basename "$NEW")" "$PREFIX/.current.$$"
    old=$(readlink "$PREFIX/current" || true)
    mv -T "$PREFIX/.current.$$" "$PREFIX/current"
    # A daemon of the old release still runs, and may be wanted back.
    for release in "$PREFIX"/releases/*; do
        if [ "$release" != "$NEW" ] && [ "$release" != "$PREFIX/$old" ]; then rm -rf "$release"; fi
    done
    NEW=
}

install_units() {
    mkdir -p "$UNITS"
    for unit in llamad.service llamad@.service llamad.socket; do
        sed "s|/opt/llamad/|$PREFIX/|" "$HERE/systemd/$unit" >"$UNITS/$unit"
        chmod 644 "$UNITS/$unit"
    done
    for name in $WITH; do
        for unit in llamad.service llamad@.service; do
            mkdir -p "$ADMIN_UNITS/$unit.d"
            sed "s|^SupplementaryGroups=.*|SupplementaryGroups=$(gpu_groups)|" \
                "$HERE/systemd/drop-ins/$name.conf" >"$ADMIN_UNITS/$unit.d/$name.conf"
            chmod 644 "$ADMIN_UNITS/$unit.d/$name.conf"
        done
        say "added the drop-in $name"
    done
    systemctl daemon-reload
}

# A unit that names a group that does not exist does not start.
gpu_groups() {
    for group in video render; do
        if getent group "$group" >/dev/null; then printf '%s ' "$group"; fi
    done
}

# systemd moves the two below /var/lib/private and /var/cache/private, which only root enters, and leaves links.
make_folders() {
    for folder in /var/lib/llamad /var/cache/llamad; do
        if [ ! -e "$folder" ]; then install -d -o llamad -g llamad -m 700 "$folder"; fi
    done
    mkdir -p "$CONFIG"
    chown root:llamad "$CONFIG"
    chmod 750 "$CONFIG"
}

install_config() {
    if [ -e "$CONFIG/llamad.env" ]; then
        say "kept $CONFIG/llamad.env"
    else
        cp "$HERE/systemd/llamad.env" "$CONFIG/llamad.env"
        chown root:llamad "$CONFIG/llamad.env"
        chmod 640 "$CONFIG/llamad.env"
        say "wrote $CONFIG/llamad.env"
    fi
    case " $WITH " in
        *" keys "*) if [ ! -e "$CONFIG/keys" ]; then make_key; fi ;;
    esac
}

make_key() {
    (
        umask 077
        "$PYTHON" -c 'import secrets; print(secrets.token_urlsafe(32))' >"$CONFIG/keys"
    )
    say "wrote an API key to $CONFIG/keys"
}

# Those that run; a stopped one starts with the new release whenever it is started.
active_services() {
    systemctl list-units --plain --no-legend --state=active 'llamad.service' 'llamad@*.service' | cut -d ' ' -f 1
}

restart_services() {
    for service in $(active_services); do
        if [ "$RESTART" = no ]; then
            say "$service still runs the old release: systemctl restart $service"
        else
            say "restarting $service"
            systemctl restart "$service" || die "$service does not start: journalctl -u $service"
        fi
    done
}

install_all() {
    SCRATCH=$(mktemp -d)
    trap clean_up EXIT
    trap 'exit 130' INT TERM
    set --
    if [ -n "$WHEELS" ]; then set -- --no-index --find-links "$WHEELS"; fi
    if [ -z "$WHEEL" ]; then build_wheel "$@"; fi
    make_release "$@"
    make_user
    make_folders
    install_config
    install_units
    switch_release
    restart_services
    if [ -z "$(active_services)" ]; then
        say
        say "Next: name a model in $CONFIG/llamad.env, then"
        say "    $PREFIX/current/bin/llamad check --env-file $CONFIG/llamad.env"
        say "    systemctl enable --now llamad.socket llamad.service"
    fi
}

# Those that an operator made, as docs/service.md says.
instance_sockets() {
    for file in "$ADMIN_UNITS"/llamad@*.socket; do
        if [ -f "$file" ]; then basename "$file"; fi
    done
}

uninstall_all() {
    # Together, so that no socket starts its service again.
    set --
    for unit in $(systemctl list-units --all --plain --no-legend 'llamad.*' 'llamad@*' | cut -d ' ' -f 1); do
        case $unit in
            *.service | *.socket) set -- "$@" "$unit" ;;
        esac
    done
    if [ $# -gt 0 ]; then
        say "stopping $*"
        systemctl stop "$@"
    fi
    # All instances of a template are disabled with it.
    for unit in llamad.service llamad.socket llamad@.service $(instance_sockets); do
        if systemctl cat "$unit" >/dev/null 2>&1; then systemctl disable --quiet "$unit"; fi
    done
    rm -f "$UNITS/llamad.service" "$UNITS/llamad@.service" "$UNITS/llamad.socket"
    for unit in llamad.service llamad@.service; do
        for name in gpu keys tls; do rm -f "$ADMIN_UNITS/$unit.d/$name.conf"; done
        if [ -d "$ADMIN_UNITS/$unit.d" ]; then rmdir --ignore-fail-on-non-empty "$ADMIN_UNITS/$unit.d"; fi
    done
    systemctl daemon-reload
    systemctl reset-failed 'llamad.*' 'llamad@*' 2>/dev/null || true
    rm -rf "$PREFIX/releases"
    rm -f "$PREFIX/current"
    if [ -d "$PREFIX" ]; then rmdir --ignore-fail-on-non-empty "$PREFIX"; fi
    say "removed services, units and releases"
    if [ "$PURGE" = yes ]; then
        purge
    else
        say "kept $CONFIG, /var/lib/llamad*, /var/cache/llamad and the user llamad (--purge removes them)"
    fi
}

# States lie in /var/lib/private, and /var/lib/llamad is a link to them.
purge() {
    rm -rf "$CONFIG" "$ADMIN_UNITS"/llamad.* "$ADMIN_UNITS"/llamad@*
    systemctl daemon-reload
    for place in /var/lib /var/cache; do
        rm -rf "$place/llamad" "$place"/llamad-* "$place/private/llamad" "$place/private"/llamad-*
    done
    if getent passwd llamad >/dev/null; then userdel llamad; fi
    say "removed configuration, states, downloads and the user"
}

read_options "$@"
check
if [ "$ACTION" = uninstall ]; then uninstall_all; else install_all; fi
