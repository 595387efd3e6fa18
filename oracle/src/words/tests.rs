use super::{Command::*, *};

fn seconds(s: f64) -> Command<'static> {
    Slow(Duration::from_secs_f64(s))
}

#[test]
fn each_line_gives_its_commands_in_order() {
    let cases: Vec<(&str, Vec<Command<'_>>)> = vec![
        ("X = 5", vec![Set { name: "X", value: 5 }]),
        ("x=-5", vec![Set { name: "x", value: -5 }]),
        ("remember that total_2 = 7, please", vec![Set { name: "total_2", value: 7 }]),
        ("ADD 1 TO X", vec![Add { name: "X", value: 1 }]),
        ("add -3 to y.", vec![Add { name: "y", value: -3 }]),
        ("What is X?", vec![Get { name: "X" }]),
        (
            "X = 5, add 1 to x; what is X. then Y = 2 and what is y",
            vec![
                Set { name: "X", value: 5 },
                Add { name: "x", value: 1 },
                Get { name: "X" },
                Set { name: "Y", value: 2 },
                Get { name: "y" },
            ],
        ),
        ("say  hello, X = 5 ", vec![Say("hello, X = 5")]),
        ("X = 1 then say: hi", vec![Set { name: "X", value: 1 }, Say("hi")]),
        ("say :)", vec![Say(":)")]),
        ("count to 3", vec![Count(3)]),
        ("sleep 2 then say hi there", vec![Sleep { seconds: "2", say: "hi there", background: false }]),
        ("sleep 0.2, and say a", vec![Sleep { seconds: "0.2", say: "a", background: false }]),
        ("Background 1 say a", vec![Sleep { seconds: "1", say: "a", background: true }]),
        ("ask: which one?", vec![Ask("which one?")]),
        ("Plan: build it, then ship", vec![Plan("build it, then ship")]),
        ("spawn helper: X = 5", vec![Spawn { agent: "helper", message: "X = 5", wait: true }]),
        (
            "then Spawn-Async a_1: spawn b: say c",
            vec![Spawn { agent: "a_1", message: "spawn b: say c", wait: false }],
        ),
        ("slow 0.5 count to 2", vec![seconds(0.5), Count(2)]),
        ("fail 429", vec![Fail { status: 429, once: false }]),
        ("fail 500 once; what is x", vec![Fail { status: 500, once: true }, Get { name: "x" }]),
        ("größe = 4", vec![Set { name: "größe", value: 4 }]),
    ];
    for (line, expected) in cases {
        assert_eq!(commands(line), expected, "{line}");
    }
}

#[test]
fn what_is_no_command_gives_none() {
    for line in [
        "",
        "   ",
        "hello",
        "X = 5px",
        "X = 1.5",
        "X == 5",
        "X = 99999999999999999999",
        "add one to x",
        "what is",
        "what is the time",
        "task: do it",
        "ask : spaced",
        "ask:",
        "spawn helper",
        "spawn helper:",
        "spawn: a child",
        "spawn-async",
        "say",
        "say   ",
        "count to 0",
        "count to 10001",
        "count to -1",
        "sleep 3",
        "sleep 1 then",
        "in the background 5",
        "sleep -1 then think",
        "slow down",
        "slow -1",
        "fail 200",
        "fail 3 tests",
        "fail",
        "…=…",
        "-",
    ] {
        assert_eq!(commands(line), vec![], "{line}");
    }
}

#[test]
fn a_huge_slow_is_capped() {
    assert_eq!(commands("slow 999999999999"), vec![Slow(MAX_SLOW)]);
}
