//! Which places of a system hold programs and toolchains, and which hold secrets. Flat tables, no decisions.
//!
//! Deliberately absent: `/tmp` and `/dev/shm`, which all users share, and `/run` but for the names of hosts.

use std::path::{Path, PathBuf};

/// The system: programs, libraries, settings, kernel facts.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/proc",
    "/sys",
    "/nix",
    "/gnu",
    "/snap",
    "/home/linuxbrew",
    "/var/lib/dpkg",
    "/var/lib/texmf",
    "/var/lib/ca-certificates",
    "/var/cache/fontconfig",
    // What /etc/resolv.conf and the system's profile link to.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/current-system",
    "/run/opengl-driver",
];

/// Devices that any program may read and write.
pub(super) const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"];

/// Where sockets lie that obey whoever connects.
pub(super) const SOCKETS: &[&str] = &[
    "/run/user",
    "/run/dbus",
    "/run/docker.sock",
    "/run/containerd",
    "/run/podman",
    "/tmp/.X11-unix",
    "/tmp/.ICE-unix",
];

/// The directory of a user's tmux sockets, below `TMUX_TMPDIR` or `/tmp`.
pub(super) fn tmux_folder() -> String {
    format!("tmux-{}", nix::unistd::geteuid())
}

/// Toolchains and their caches, below home.
const OF_HOME: &[&str] = &[
    ".cargo",
    ".rustup",
    ".pyenv",
    ".nvm",
    ".fnm",
    ".volta",
    ".asdf",
    ".rbenv",
    ".rvm",
    ".gem",
    ".sdkman",
    ".jdks",
    ".m2",
    ".gradle",
    ".ghcup",
    ".cabal",
    ".stack",
    ".opam",
    ".elan",
    ".julia",
    ".juliaup",
    ".bun",
    ".deno",
    ".dotnet",
    ".nuget",
    ".npm",
    ".yarn",
    ".conda",
    ".condarc",
    "miniconda3",
    "miniforge3",
    "go",
    ".cache",
    ".local/bin",
    ".local/lib",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv",
    ".local/share/virtualenvs",
    ".gitconfig",
    ".config/git",
    ".config/mise",
    ".config/pip",
    ".config/uv",
    ".editorconfig",
    ".tool-versions",
];

/// Secrets below home, whatever else is granted.
const SECRETS_OF_HOME: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".git-credentials",
    ".password-store",
    ".config/gh",
    ".config/gcloud",
    ".config/decode",
    ".config/git/credentials",
    ".config/pip/pip.conf",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".gem/credentials",
    ".bundle/config",
    ".nuget/NuGet",
    ".local/share/keyrings",
    ".local/share/uv/credentials",
    ".local/state/decode",
];

/// Secrets that lie where a toolchain was moved to by a variable.
pub(super) const SECRETS_OF_TOOLCHAINS: &[&str] = &["credentials", "credentials.toml", "gradle.properties"];

/// Variables that say where a toolchain lives.
pub(super) const TOOLCHAIN_VARIABLES: &[&str] = &[
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOROOT",
    "GOPATH",
    "GOMODCACHE",
    "JAVA_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "NVM_DIR",
    "VOLTA_HOME",
    "GRADLE_USER_HOME",
    "DENO_DIR",
    "BUN_INSTALL",
];

/// What programs of a directory need to run: the hidden directory they lie in, as `.pyenv` of `.pyenv/shims`, which is
/// where people's toolchains are; any other directory by itself. `.local` and `.config` hold all kinds of things.
pub(super) fn tree_of_programs(directory: &Path) -> PathBuf {
    let toolchain = |path: &&Path| {
        let name = path.file_name().map(std::ffi::OsStr::as_encoded_bytes).unwrap_or_default();
        name.starts_with(b".") && name != b".local" && name != b".config"
    };
    directory.parent().filter(toolchain).unwrap_or(directory).to_owned()
}

pub(super) fn readable(home: &Path) -> Vec<PathBuf> {
    let system = SYSTEM.iter().map(PathBuf::from);
    system.chain(OF_HOME.iter().map(|name| home.join(name))).collect()
}

pub(super) fn hidden(home: &Path) -> Vec<PathBuf> {
    SECRETS_OF_HOME.iter().map(|name| home.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_a_toolchain_see_all_of_it_and_those_of_a_home_only_themselves() {
        for (directory, tree) in
            [("/r/.pyenv/shims", "/r/.pyenv"), ("/r/bin", "/r/bin"), ("/r/.local/bin", "/r/.local/bin"), ("/", "/")]
        {
            assert_eq!(tree_of_programs(Path::new(directory)), Path::new(tree));
        }
    }
}
