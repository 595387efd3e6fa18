//! What is known of programs: those that run others, and those that run nothing.

/// A program that runs the command in its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wrapper {
    /// Options whose value is the next word.
    pub(super) valued: &'static [&'static str],
    /// How many words stand between the options and the command.
    pub(super) operands: usize,
    /// Words such as `A=b` may stand before the command.
    pub(super) assigns: bool,
}

const fn plain(valued: &'static [&'static str]) -> Wrapper {
    Wrapper { valued, operands: 0, assigns: false }
}

/// The options of `sudo` that have values.
const SUDO: &[&str] = &[
    "-u",
    "--user",
    "-g",
    "--group",
    "-h",
    "--host",
    "-p",
    "--prompt",
    "-C",
    "--close-from",
    "-r",
    "--role",
    "-t",
    "--type",
    "-T",
    "--command-timeout",
    "-D",
    "--chdir",
    "-R",
    "--chroot",
    "-U",
];

/// Those of `xargs`.
const XARGS: &[&str] = &[
    "-I",
    "-n",
    "--max-args",
    "-P",
    "--max-procs",
    "-L",
    "--max-lines",
    "-s",
    "--max-chars",
    "-a",
    "--arg-file",
    "-d",
    "--delimiter",
    "-E",
];

/// How a wrapper's arguments are read; `None`: it is no wrapper.
pub(super) fn wrapper(name: &str) -> Option<Wrapper> {
    Some(match name {
        "builtin" | "command" | "nohup" | "setsid" | "busybox" | "toybox" | "coproc" | "noglob"
        | "nocorrect" | "unbuffer" | "fakeroot" | "ccache" | "dbus-run-session" | "catchsegv" | "-" => {
            plain(&[])
        }
        "exec" => plain(&["-a"]),
        "time" => plain(&["-f", "--format", "-o", "--output"]),
        "env" => Wrapper {
            valued: &["-u", "--unset", "-C", "--chdir", "-a", "--argv0"],
            operands: 0,
            assigns: true,
        },
        "sudo" => Wrapper { valued: SUDO, operands: 0, assigns: true },
        "doas" => Wrapper { valued: &["-u", "-C"], operands: 0, assigns: true },
        "nice" => plain(&["-n", "--adjustment"]),
        "ionice" => {
            plain(&["-c", "--class", "-n", "--classdata", "-p", "--pid", "-P", "--pgid", "-u", "--uid"])
        }
        "stdbuf" => plain(&["-i", "--input", "-o", "--output", "-e", "--error"]),
        "timeout" => {
            Wrapper { valued: &["-k", "--kill-after", "-s", "--signal"], operands: 1, assigns: false }
        }
        "chrt" => Wrapper {
            valued: &["-T", "--sched-runtime", "-P", "--sched-period", "-D", "--sched-deadline"],
            operands: 1,
            assigns: false,
        },
        "taskset" | "chroot" => Wrapper { valued: &["--userspec", "--groups"], operands: 1, assigns: false },
        "xargs" => plain(XARGS),
        "strace" | "ltrace" => {
            plain(&["-o", "-e", "-s", "-p", "-u", "-a", "-E", "-O", "-S", "-P", "-b", "-I"])
        }
        "setpriv" | "unshare" | "nsenter" | "prlimit" | "systemd-run" => plain(&[]),
        _ => return None,
    })
}

/// Shells: what they run is in a string, in a file or comes over standard input.
pub(super) fn is_shell(name: &str) -> bool {
    matches!(
        name,
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "mksh" | "ash" | "rbash" | "fish" | "csh" | "tcsh" | "pwsh"
    )
}

/// Builtins that make other words mean something else, or run what is not in the line.
pub(super) fn is_opaque(name: &str) -> bool {
    matches!(
        name,
        "alias" | "enable" | "hash" | "source" | "." | "bind" | "complete" | "mapfile" | "readarray"
    )
}

/// The options by which an interpreter runs what is written in the line; `None`: it is none.
pub(super) fn inline_code(name: &str) -> Option<&'static [&'static str]> {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    Some(match name {
        "python" | "pypy" => &["-c"],
        "perl" => &["-e", "-E", "-n", "-p", "-i"],
        "node" | "nodejs" | "bun" | "deno" => &["-e", "--eval", "-p", "--print", "eval"],
        "php" => &["-r"],
        "ruby" | "lua" | "luajit" | "Rscript" | "osascript" => &["-e"],
        "tclsh" | "expect" => &[""],
        "vim" | "vi" | "nvim" | "ex" | "ed" | "emacs" => &["-c", "--eval", "+"],
        _ => return None,
    })
}

/// See [`runs_nothing`].
const NAMES: &[&str] = &[
    "[",
    "[[",
    "apt",
    "apt-get",
    "base64",
    "basename",
    "brew",
    "cargo",
    "case",
    "cat",
    "cd",
    "chgrp",
    "chmod",
    "chown",
    "cksum",
    "cmp",
    "column",
    "comm",
    "continue",
    "break",
    "cp",
    "curl",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "docker",
    "du",
    "echo",
    "egrep",
    "exit",
    "expr",
    "false",
    "fgrep",
    "file",
    "fmt",
    "fold",
    "for",
    "free",
    "function",
    "gh",
    "git",
    "go",
    "grep",
    "groups",
    "gunzip",
    "gzip",
    "head",
    "hostname",
    "id",
    "install",
    "join",
    "jq",
    "kill",
    "ln",
    "locale",
    "ls",
    "lsof",
    "md5sum",
    "mkdir",
    "mktemp",
    "mv",
    "nl",
    "nproc",
    "npm",
    "od",
    "paste",
    "pgrep",
    "pip",
    "pip3",
    "pkill",
    "pnpm",
    "popd",
    "printenv",
    "printf",
    "ps",
    "pushd",
    "pwd",
    "read",
    "readlink",
    "realpath",
    "return",
    "rg",
    "rm",
    "rmdir",
    "select",
    "seq",
    "set",
    "sha256sum",
    "shift",
    "sleep",
    "sort",
    "ss",
    "stat",
    "sum",
    "tac",
    "tail",
    "tee",
    "test",
    "touch",
    "tr",
    "tree",
    "true",
    "truncate",
    "type",
    "ulimit",
    "umask",
    "uname",
    "uniq",
    "unlink",
    "unset",
    "uptime",
    "wait",
    "wc",
    "wget",
    "which",
    "who",
    "whoami",
    "yarn",
    "yes",
];

/// Programs that run none of their arguments, or only what they name a subcommand.
pub(super) fn runs_nothing(name: &str) -> bool {
    NAMES.contains(&name)
}

pub(super) fn is_awk(name: &str) -> bool {
    matches!(name, "awk" | "gawk" | "mawk" | "nawk")
}

/// Builtins whose arguments are assignments.
pub(super) fn assigns(name: &str) -> bool {
    matches!(name, "export" | "declare" | "typeset" | "local" | "readonly")
}

/// Variables by which other programs run than the line says.
pub(super) fn redirects_programs(variable: &str) -> bool {
    const NAMES: &[&str] = &[
        "PATH",
        "IFS",
        "ENV",
        "BASH_ENV",
        "PROMPT_COMMAND",
        "PS4",
        "SHELLOPTS",
        "BASHOPTS",
        "CDPATH",
        "PYTHONSTARTUP",
        "PERL5OPT",
        "PERL5LIB",
        "RUBYOPT",
        "NODE_OPTIONS",
        "PYTHONPATH",
    ];
    NAMES.contains(&variable) || ["LD_", "GIT_", "DYLD_"].iter().any(|start| variable.starts_with(start))
}

/// Words of a shell's grammar before a command.
pub(super) fn is_keyword(word: &str) -> bool {
    matches!(word, "!" | "do" | "done" | "elif" | "else" | "esac" | "fi" | "if" | "then" | "until" | "while")
}
