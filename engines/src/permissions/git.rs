//! Git's own command line: which subcommand it is, and whether it runs what nothing here tells.

use super::lexer::Word;

/// Global options whose value is the next word.
const VALUED: [&str; 5] = ["-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix"];

/// Global options by which git runs other programs, or finds its own elsewhere.
const OPAQUE: [&str; 4] = ["-c", "--config-env", "--exec-path", "--attr-source"];

/// Subcommands and options that run what their arguments say.
const RUNNING: [&str; 6] = ["filter-branch", "difftool", "mergetool", "foreach", "instaweb", "hook"];
const RUNNING_OPTIONS: [&str; 8] = [
    "--upload-pack",
    "--receive-pack",
    "--exec",
    "--open-files-in-pager",
    "--ext-diff",
    "--textconv",
    "--config",
    "--command",
];

/// The subcommands that git has.
const KNOWN: &[&str] = &[
    "add",
    "am",
    "annotate",
    "apply",
    "archive",
    "bisect",
    "blame",
    "branch",
    "bundle",
    "cat-file",
    "check-attr",
    "check-ignore",
    "check-ref-format",
    "checkout",
    "cherry",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "commit-tree",
    "config",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "fetch",
    "for-each-ref",
    "format-patch",
    "fsck",
    "gc",
    "grep",
    "hash-object",
    "help",
    "init",
    "lfs",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "maintenance",
    "merge",
    "merge-base",
    "merge-file",
    "merge-tree",
    "mktree",
    "mv",
    "name-rev",
    "notes",
    "pack-refs",
    "prune",
    "pull",
    "push",
    "range-diff",
    "read-tree",
    "rebase",
    "reflog",
    "remote",
    "repack",
    "replace",
    "request-pull",
    "rerere",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "send-email",
    "shortlog",
    "show",
    "show-branch",
    "show-ref",
    "sparse-checkout",
    "stage",
    "stash",
    "status",
    "stripspace",
    "submodule",
    "switch",
    "symbolic-ref",
    "tag",
    "update-index",
    "update-ref",
    "var",
    "verify-commit",
    "verify-pack",
    "verify-tag",
    "version",
    "whatchanged",
    "worktree",
    "write-tree",
];

/// What a command of git comes to.
pub(super) struct Read {
    /// The command without git's global options.
    pub(super) words: Vec<Word>,
    /// It may run what the line does not tell.
    pub(super) is_opaque: bool,
    /// Git has no such subcommand: it is an alias, or a program of its own.
    pub(super) is_alias: bool,
}

/// Reads the words of a command, the first of which is `git`.
pub(super) fn read(words: &[Word]) -> Read {
    let mut is_opaque = false;
    let mut at = 1;
    while let Some(word) = words.get(at).filter(|word| !word.is_open && word.text.starts_with('-')) {
        let (name, value) =
            word.text.split_once('=').map_or((&*word.text, None), |(name, value)| (name, Some(value)));
        // `-ckey=value` is `-c key=value`.
        is_opaque |= OPAQUE.contains(&name) || (name.starts_with("-c") && name != "--bare");
        at += 1;
        if value.is_none() && (VALUED.contains(&name) || name == "-c" || name == "--config-env") {
            at += 1;
        }
    }
    let rest = words.get(at..).unwrap_or_default();
    let mut read: Vec<Word> = words.first().cloned().into_iter().collect();
    read.extend_from_slice(rest);
    let Some(command) = rest.first().filter(|word| !word.is_open) else {
        return Read { words: read, is_opaque, is_alias: false };
    };
    is_opaque |= rest.iter().any(|word| is_running(command, word));
    Read { is_alias: !KNOWN.contains(&&*command.text), words: read, is_opaque }
}

fn is_running(command: &Word, word: &Word) -> bool {
    let text = &*word.text;
    let option = text.split_once('=').map_or(text, |(name, _)| name);
    // Git takes an option by its beginning.
    let is_option = option.len() > 3
        && RUNNING_OPTIONS.iter().any(|known| known.starts_with(option) || option.starts_with(known));
    let is_short = match &*command.text {
        "rebase" => text.starts_with("-x"),
        "clone" => text.starts_with("-u") || text.starts_with("-c"),
        "grep" => text.starts_with("-O"),
        "bisect" => text == "run",
        // It sets what git runs from then on.
        "config" => [
            "alias.",
            "core.",
            "filter.",
            "diff.",
            "merge.",
            "credential.",
            "gpg.",
            "include",
            "pager.",
            "hook.",
        ]
        .iter()
        .any(|section| text.to_ascii_lowercase().starts_with(section)),
        _ => false,
    };
    RUNNING.contains(&text) || is_option || is_short
}
