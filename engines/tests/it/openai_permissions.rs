//! Which calls run.

use roundhouse_engines::contract::Answer;
use roundhouse_engines::openai::{Permissions, Rule, Settings, Verdict};
use serde_json::{Value, json};

use crate::script::{Server, calls, says};
use crate::tools::with_tools;
use crate::turns::{answered, engine, input, open, settings, turn};

fn permissions(value: Value) -> Permissions {
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_most_specific_rule_decides_and_among_equals_the_strictest() {
    let cases = [
        (json!({}), "echo", Verdict::Allow),
        (json!({"default": "ask"}), "echo", Verdict::Ask),
        (json!({"default": "deny", "allow": ["echo"]}), "echo", Verdict::Allow),
        (json!({"default": "deny", "allow": ["echo"]}), "echos", Verdict::Deny),
        (json!({"allow": ["echo"], "ask": ["echo"]}), "echo", Verdict::Ask),
        (json!({"allow": ["echo"], "ask": ["echo"], "deny": ["echo"]}), "echo", Verdict::Deny),
        (json!({"default": "deny", "allow": ["shell(ls)"]}), "shell", Verdict::Deny),
        (json!({"default": "deny", "allow": ["files__*"]}), "files__read", Verdict::Allow),
        (json!({"default": "deny", "allow": ["files__*"]}), "files__", Verdict::Allow),
        (json!({"default": "deny", "allow": ["files__*"]}), "files_", Verdict::Deny),
        (json!({"default": "deny", "allow": ["files__*"]}), "my_files__read", Verdict::Deny),
        (json!({"allow": ["files__read"], "deny": ["files__*"]}), "files__read", Verdict::Allow),
        (json!({"allow": ["files__*"], "deny": ["files__read"]}), "files__read", Verdict::Deny),
        (json!({"allow": ["files__re*"], "deny": ["files__*"]}), "files__read", Verdict::Allow),
        (json!({"allow": ["files__re*"], "deny": ["files__*"]}), "files__write", Verdict::Deny),
        (json!({"allow": ["files__*"], "ask": ["files__*"]}), "files__read", Verdict::Ask),
    ];
    for (rules, tool, expected) in cases {
        assert_eq!(permissions(rules.clone()).decide(tool, &json!({"x": 1})), expected, "{rules} {tool}");
    }
}

#[test]
fn commands_are_allowed_only_if_each_part_of_them_is() {
    let permissions = permissions(json!({
        "default": "deny",
        "allow": ["shell(git status)", "shell(git log)", "shell(cargo test)", "shell(wc)"],
        "ask": ["shell"],
    }));
    let allowed = [
        "git status",
        "  git   status --short ",
        "git status && git log -3 | wc -l",
        "cargo test 2>&1 | wc",
        "git log >/dev/null; git status",
        "git log -- '*.rs'",
        "git status\ngit log",
        "(git status)",
    ];
    let asked = [
        "git statusx",
        "git",
        "git push",
        "git status; rm -rf /",
        "git status && rm x",
        "git status || rm x",
        "git status | sh",
        "git status & rm x",
        "git status\nrm x",
        "git status $(rm x)",
        "git status \"$(rm x)\"",
        "git status `rm x`",
        "git status <(rm x)",
        "git log > file",
        "git log>file",
        "git log 2>&1>file",
        "PAGER=rm git log",
        "sudo git status",
        "/tmp/git status",
        "git\u{a0}status",
        "git status\u{2028}rm",
        "",
    ];
    for (commands, expected) in [(&allowed[..], Verdict::Allow), (&asked[..], Verdict::Ask)] {
        for command in commands {
            assert_eq!(permissions.decide("shell", &json!({"command": command})), expected, "{command}");
        }
    }
    assert_eq!(permissions.decide("shell", &json!({"command": ["git", "status"]})), Verdict::Ask);
    assert_eq!(permissions.decide("other", &json!({"command": "git status"})), Verdict::Deny);
}

#[test]
fn one_part_of_a_command_is_enough_to_ask_or_deny() {
    let permissions = permissions(json!({
        "allow": ["shell(git push --dry-run)", "shell(git)"],
        "ask": ["shell(git push)"],
        "deny": ["shell(rm)", "shell(git push --force)"],
    }));
    let cases = [
        ("ls", Verdict::Allow),
        ("git status", Verdict::Allow),
        ("git pushx", Verdict::Allow),
        ("git push origin", Verdict::Ask),
        ("git push --dry-run origin", Verdict::Allow),
        ("git push --force", Verdict::Deny),
        ("ls; git push", Verdict::Ask),
        ("git push; ls; rm x", Verdict::Deny),
        ("echo $(git push)", Verdict::Ask),
        ("echo `rm x`", Verdict::Deny),
        ("(rm x)", Verdict::Deny),
        ("{ rm x; }", Verdict::Deny),
        ("if true; then rm x; fi", Verdict::Deny),
        ("A=1 B=2 rm x", Verdict::Deny),
        ("sudo rm x", Verdict::Deny),
        ("find . | xargs rm", Verdict::Deny),
        ("/bin/rm x", Verdict::Deny),
        ("r\"m\" x", Verdict::Deny),
        ("\\rm x", Verdict::Deny),
        (">log rm x", Verdict::Deny),
        ("> log rm x", Verdict::Deny),
        ("git push>log", Verdict::Ask),
        ("git \\\npush", Verdict::Ask),
        ("git \"push\"", Verdict::Ask),
        ("echo rm", Verdict::Allow),
        ("git rm x", Verdict::Allow),
    ];
    for (command, expected) in cases {
        assert_eq!(permissions.decide("shell", &json!({"command": command})), expected, "{command}");
    }
}

#[test]
fn what_is_no_permission_is_refused() {
    let cases = [
        ("", "it has to be tool, beginning of tools*, or shell(beginning of a command)"),
        ("*", "it has to be tool, beginning of tools*, or shell(beginning of a command)"),
        ("a*b", "it has to be tool, beginning of tools*, or shell(beginning of a command)"),
        ("*__read", "it has to be tool, beginning of tools*, or shell(beginning of a command)"),
        ("shell*(ls)", "only `shell` and `Bash` have commands, and only file tools have paths"),
        ("read file", "it has to be tool, beginning of tools*, or shell(beginning of a command)"),
        ("shell(git", "its bracket is not closed"),
        ("shell( )", "the brackets have to hold the beginning of one plain command"),
        ("shell(ls | wc)", "the brackets have to hold the beginning of one plain command"),
        ("web__fetch(a)", "only `shell` and `Bash` have commands, and only file tools have paths"),
        ("read_file()", "the brackets have to hold a path, in which `*` and `**` may stand: `./src/**`"),
        ("Read(a/../b)", "the brackets have to hold a path, in which `*` and `**` may stand: `./src/**`"),
    ];
    for (rule, reason) in cases {
        let error = rule.parse::<Rule>().unwrap_err().to_string();
        assert_eq!(error, format!("`{rule}` is no permission: {reason}"));
    }
    for wrong in [json!({"defaults": "ask"}), json!({"default": "maybe"}), json!({"allow": ["a b"]})] {
        assert!(serde_json::from_value::<Permissions>(wrong.clone()).is_err(), "{wrong}");
    }
}

const MAY: &str = r#"may it shell {"command":"ls"} as a"#;

#[tokio::test]
async fn a_call_that_is_asked_about_waits_for_the_answer() {
    let other = |command: &str| Answer::Allow { input: Some(json!({"command": command})) };
    let cases: [(Answer, &[&str]); 7] = [
        (
            Answer::Allow { input: None },
            &[r#"started shell {"command":"ls"} as a"#, r#"shell did a: ran "ls""#],
        ),
        (other("ls"), &[r#"started shell {"command":"ls"} as a"#, r#"shell did a: ran "ls""#]),
        (
            other("pwd"),
            &[
                r#"started shell {"command":"pwd"} as a"#,
                "shell did a: [The call was changed before it ran. Its arguments were: {\"command\":\"pwd\"}]\nran \"pwd\"",
            ],
        ),
        (other("rm x"), &["shell failed a: This call of `shell` is not permitted."]),
        (
            Answer::Allow { input: Some(json!("pwd")) },
            &["shell failed a: The call was to run with arguments that are no object, and did not: \"pwd\""],
        ),
        (Answer::Deny("Not today.".to_owned()), &["shell failed a: Not today."]),
        (Answer::Deny(String::new()), &["shell failed a: This call of `shell` is not permitted."]),
    ];
    for (answer, expected) in cases {
        let server = Server::start([calls(&[("a", "shell", r#"{"command":"ls"}"#)]), says("hi")]).await;
        let (settings, _) = with_tools(settings(&server.base_url));
        let permissions = permissions(json!({"ask": ["shell"], "deny": ["shell(rm)"]}));
        let engine = engine(Settings { permissions, ..settings });
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();

        let events = answered(&mut *session, [answer]).await;

        assert_eq!(events[1], MAY);
        assert_eq!(events[2..events.len() - 4], *expected);
        assert_eq!(events.last().unwrap(), "done after 2");
    }
}

#[tokio::test]
async fn a_call_that_is_denied_does_not_run() {
    let server = Server::start([calls(&[("a", "echo", "{}"), ("b", "shell", "{}")]), says("hi")]).await;
    let (settings, fake) = with_tools(settings(&server.base_url));

    let events = turn(Settings { permissions: permissions(json!({"deny": ["echo"]})), ..settings }).await;

    assert_eq!(events[1], "echo failed a: This call of `echo` is not permitted.");
    assert_eq!(*fake.ran.lock().unwrap(), ["shell {}"]);
}

#[tokio::test]
async fn a_question_needs_no_permission_but_may_be_denied() {
    for (default, expected) in [("ask", "asks"), ("deny", "ask_user failed a: ")] {
        let server = Server::start([calls(&[("a", "ask_user", r#"{"question":"Go?"}"#)]), says("hi")]).await;
        let settings = Settings { ask_user: true, ..settings(&server.base_url) };
        let engine = engine(Settings { permissions: permissions(json!({"default": default})), ..settings });
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();

        let events = answered(&mut *session, [Answer::Text("yes".to_owned())]).await;

        assert!(events.iter().any(|event| event.starts_with(expected)), "{events:?}");
    }
}
