//! What rules make of commands, by any spelling.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use roundhouse_engines::openai::{Permissions, Verdict};
use serde_json::{Value, json};

use Verdict::{Allow, Ask, Deny};

fn permissions(value: Value) -> Permissions {
    serde_json::from_value(value).unwrap()
}

#[track_caller]
fn check(permissions: &Permissions, cases: &[(&str, Verdict)]) {
    for (command, expected) in cases {
        assert_eq!(permissions.decide("shell", &json!({"command": command})), *expected, "{command}");
    }
}

#[test]
fn a_denied_command_is_found_behind_whatever_runs_it() {
    check(
        &permissions(json!({"deny": ["shell(rm)", "shell(git push)"]})),
        &[
            ("timeout 5 rm x", Deny),
            ("timeout -k 1 --signal=KILL 5s rm x", Deny),
            ("env -i -u A B=1 rm x", Deny),
            ("nice -n 5 ionice -c 2 nohup setsid rm x", Deny),
            ("stdbuf -oL command rm x", Deny),
            ("exec -a ls rm x", Deny),
            ("chrt 5 rm x", Deny),
            ("sudo -u root -- rm x", Deny),
            ("time -p rm x", Deny),
            ("busybox rm x", Deny),
            ("ls | xargs -0 -n 1 rm", Deny),
            ("find . -name a -exec rm {} \\;", Deny),
            ("sh -c 'rm x'", Deny),
            ("bash -lc \"cd /; rm x\"", Deny),
            ("sh -c \"sh -c 'rm x'\"", Deny),
            ("eval 'rm x'", Deny),
            ("trap 'rm x' EXIT", Deny),
            ("$'\\x72\\155' x", Deny),
            ("r''m x", Deny),
            ("\"r\"\\m x", Deny),
            ("r\\\nm x", Deny),
            ("echo \"a $(rm x)\"", Deny),
            ("echo ${a:-$(rm x)}", Deny),
            ("cat <(rm x)", Deny),
            ("f() { rm x; }; f", Deny),
            ("exec 2>&- rm x", Deny),
            ("2>&1 rm x", Deny),
            ("git -C dir push", Deny),
            ("git --git-dir=a --work-tree b --no-pager push", Deny),
            ("/usr/bin/git -p push", Deny),
        ],
    );
}

#[test]
fn what_cannot_be_told_is_asked_about() {
    let cases = [
        "$X x",
        "X=rm; $X x",
        "${X}m x",
        "/bin/r? x",
        "{rm,x}",
        "rm$IFS-rf$IFS/",
        "`echo r`m x",
        "eval \"$X\"",
        "sh -c \"$X\"",
        "sh ./script.sh",
        "echo cm0geA== | base64 -d | sh",
        "bash <<< 'x'",
        "source x",
        ". ./x",
        "alias a=b",
        "hash -p /bin/rm ls",
        "env -S 'rm x'",
        "PATH=. ls",
        "LD_PRELOAD=./a.so ls",
        "python3 -c 'import os; os.remove(\"x\")'",
        "perl -e 'unlink x'",
        "awk 'BEGIN { system(\"x\") }'",
        "nice --unknown 5 rm x",
        "some-wrapper rm x",
        "watch 'rm x'",
        "A='rm x' make",
        "git -c alias.x='!rm x' x",
        "git -c core.pager='rm x' log",
        "git --exec-path=. status",
        "git --config-env=alias.x=Y x",
        "git unknown",
        "git submodule foreach 'rm x'",
        "git fetch --upload-pack='rm x' .",
        "git rebase -x 'rm x' a",
        "git config alias.x '!rm x'",
        "GIT_SSH_COMMAND='rm x' git fetch",
        "git $X",
        "git p\"$X\" origin",
    ];
    let strict = permissions(json!({"deny": ["shell(rm)", "shell(git push)"]}));
    check(&strict, &cases.map(|command| (command, Ask)));
    // Also where the tool as a whole is allowed, and where rules ask.
    let allowed = permissions(json!({"allow": ["shell"], "deny": ["shell(rm)", "shell(git push)"]}));
    check(&allowed, &cases.map(|command| (command, Ask)));
    // Without such rules nothing has to be told.
    check(
        &permissions(json!({"allow": ["shell"], "deny": ["other"]})),
        &cases.map(|command| (command, Allow)),
    );
}

#[test]
fn ordinary_commands_are_not_asked_about() {
    let cases = [
        "ls -la /tmp; echo rm; cat 'a b' | grep rm | wc -l",
        "git status && git log --oneline -5 && git diff HEAD~1 -- src",
        "git commit -m 'remove the file'",
        "git rm x",
        "cargo test --workspace 2>&1 | tail -5",
        "cd src && make -j4",
        "for f in *.rs; do echo $f; done",
        "if [ -f a ]; then cat a; else touch a; fi",
        "A=1 B=\"$C\" make test",
        "export A=1; echo $A",
        "python3 script.py --flag",
        "awk '{ print $1 }' file",
        "find . -name '*.rs' | xargs wc -l",
        "sleep 1 && echo done > log",
        "test -n \"$X\" && echo \"${X%/}\"",
        "mkdir -p a/b && cp a/*.rs b/",
    ];
    check(
        &permissions(json!({"deny": ["shell(rm)", "shell(git push)"]})),
        &cases.map(|command| (command, Allow)),
    );
}

#[test]
fn a_command_within_an_allowed_one_needs_leave_of_its_own() {
    let rules =
        json!({"default": "ask", "allow": ["shell(timeout)", "shell(sh)", "shell(ls)", "shell(find)"]});
    check(
        &permissions(rules),
        &[
            ("timeout 5 ls", Allow),
            ("timeout 5 rm x", Ask),
            ("sh -c 'ls'", Allow),
            ("sh -c 'rm x'", Ask),
            ("find . -name a", Allow),
            ("find . -exec rm {} +", Ask),
            ("timeout 5 timeout 5 touch x", Ask),
        ],
    );
    let rules = json!({"deny": ["shell(rm)"], "allow": ["shell(timeout 5)"]});
    check(&permissions(rules), &[("timeout 5 rm x", Deny), ("timeout 5 ls", Allow)]);
}

#[test]
fn every_tool_that_carries_a_command_is_a_shell() {
    let rules = permissions(json!({"ask": ["Bash(touch)"], "deny": ["shell(rm)"]}));
    for tool in ["shell", "Bash", "Monitor", "PowerShell", "box__run", "mcp__box__run"] {
        for (command, expected) in [("rm x", Deny), ("touch x", Ask), ("ls", Allow)] {
            assert_eq!(rules.decide(tool, &json!({"command": command})), expected, "{tool} {command}");
        }
        for member in ["cmd", "script", "command_line"].iter().filter(|_| tool.contains("__")) {
            assert_eq!(rules.decide(tool, &json!({*member: "rm x"})), Deny, "{tool} {member}");
        }
    }
    assert_eq!(rules.decide("box__run", &json!({"command": ["rm", "x"]})), Deny);

    let whole = permissions(json!({"ask": ["Bash"]}));
    for tool in ["Bash", "Monitor", "shell", "box__run"] {
        assert_eq!(whole.decide(tool, &json!({"command": "ls"})), Ask, "{tool}");
    }
    let named = permissions(json!({"ask": ["Bash"], "deny": ["Bash(rm)"], "allow": ["box__*"]}));
    assert_eq!(named.decide("box__run", &json!({"command": "ls"})), Allow);
    assert_eq!(named.decide("box__run", &json!({"command": "rm x"})), Deny);
    // What is allowed to the shell is not to another tool.
    let allowed = permissions(json!({"default": "ask", "allow": ["Bash"]}));
    assert_eq!(allowed.decide("Monitor", &json!({"command": "ls"})), Allow);
    assert_eq!(allowed.decide("box__run", &json!({"command": "ls"})), Ask);
}

#[test]
fn a_tool_that_is_not_known_is_asked_about_under_rules_that_restrict() {
    let input = json!({"x": 1});
    for rules in [json!({"deny": ["WebFetch"]}), json!({"ask": ["shell(rm)"]})] {
        let rules = permissions(rules);
        for tool in ["Workflow", "CronCreate", "ScheduleWakeup", "EnterWorktree", "OfTheNextRelease"] {
            assert_eq!(rules.decide(tool, &input), Ask, "{tool}");
        }
        for tool in ["Read", "read_file", "Agent", "files__read", "mcp__files__read", "TaskStop"] {
            assert_eq!(rules.decide(tool, &input), Allow, "{tool}");
        }
    }
    let named = permissions(json!({"deny": ["WebFetch"], "allow": ["Workflow"]}));
    assert_eq!(named.decide("Workflow", &input), Allow);
    assert_eq!(permissions(json!({"allow": ["Read"]})).decide("OfTheNextRelease", &input), Allow);
    assert_eq!(permissions(json!({"default": "deny"})).decide("OfTheNextRelease", &input), Deny);
}

/// A shell finds `victim` and says so in a file.
struct Probe {
    dir: tempfile::TempDir,
}

impl Probe {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, format!("#!/bin/sh\necho ran >> {}/ran\n", dir.path().display())).unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    fn runs(&self, command: &str) -> bool {
        let dir: &Path = self.dir.path();
        let _ = fs::remove_file(dir.join("ran"));
        let path = format!("{}:/usr/bin:/bin", dir.display());
        let shell = std::process::Command::new("bash")
            .args(["-c", command])
            .env_clear()
            .env("PATH", path)
            .current_dir(dir)
            .output()
            .unwrap();
        drop(shell);
        dir.join("ran").exists()
    }
}

/// Ways to have a command run, by turns around one another.
const AROUND: [&str; 34] = [
    "{}",
    "env {}",
    "env A=1 -u B {}",
    "timeout 5 {}",
    "timeout -s KILL 5 {}",
    "nice -n 1 {}",
    "nohup {}",
    "stdbuf -o0 {}",
    "setsid -w {}",
    "command {}",
    "A=b {}",
    "true && {}",
    "false || {}",
    "true; {}",
    "( {} )",
    "{ {}; }",
    "if true; then {}; fi",
    "for x in a; do {}; done",
    "while {}; do break; done",
    "! {}",
    "echo $({})",
    "echo \"$({})\"",
    "echo `{}`",
    "cat <({})",
    "{} > out",
    "> out {}",
    "{} | cat",
    "echo a | {}",
    "case a in a) {};; esac",
    "f() { {}; }; f",
    "echo ${Z:-$({})}",
    "echo $(( 1 + $({} >/dev/null; echo 1) ))",
    "{} & wait",
    "exec {}",
];

/// Ways to write a command.
const SPELLED: [&str; 16] = [
    "victim",
    "'victim'",
    "\"victim\"",
    "vic\\tim",
    "v''ictim",
    "$'victim'",
    "$'\\x76ictim'",
    "$'\\166ictim'",
    "./victim",
    "vic\\\ntim",
    "victi?",
    "./v*m",
    "v${Z}ictim",
    "${Z:-victim}",
    "{victim,a}",
    "$(echo victim)",
];

#[test]
fn whatever_a_real_shell_runs_is_not_allowed_where_it_is_denied() {
    let probe = Probe::new();
    let rules = permissions(json!({"allow": ["shell"], "deny": ["shell(victim)"]}));
    let (mut state, mut ran) = (0x2545_f491_4f6c_dd1d_u64, 0);
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for round in 0..400 {
        let mut command = SPELLED[random(SPELLED.len())].to_owned();
        for _ in 0..round % 4 {
            let around = AROUND[random(AROUND.len())];
            command = match random(8) {
                0 => format!("bash -c '{}'", command.replace('\'', "'\\''")),
                1 => format!("eval '{}'", command.replace('\'', "'\\''")),
                _ => around.replace("{}", &command),
            };
        }
        if probe.runs(&command) {
            ran += 1;
            let verdict = rules.decide("shell", &json!({"command": command}));
            assert_ne!(verdict, Allow, "{command}");
        }
    }
    assert!(ran > 100, "only {ran} commands have run it");
}

#[test]
fn no_text_is_too_odd_to_be_judged() {
    let rules = permissions(json!({"default": "ask", "allow": ["shell(ls)"], "deny": ["shell(rm)"]}));
    let pieces = [
        "rm", "ls", " ", "'", "\"", "$", "(", ")", "{", "}", "`", "\\", ";", "&", "|", "<", ">", "\n", "#",
        "=", "git", "-c", "sh", "eval", "\u{0}", "é", "\u{2028}", "*", "[", "$'", "\\x", "${", "$((", "<(",
        "<<", "xargs", "env",
    ];
    let mut state = 88_172_645_463_325_252_u64;
    for length in 0..2_000 {
        let mut text = String::new();
        for _ in 0..length % 40 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            text.push_str(pieces[usize::try_from(state % pieces.len() as u64).unwrap()]);
        }
        rules.decide("shell", &json!({"command": text}));
    }
    for long in ["$(", "(", "a ", "'", "sh -c '", "`", "${", "env ", "a=b ", "x \"y z\" "] {
        rules.decide("shell", &json!({"command": long.repeat(20_000)}));
    }
}
