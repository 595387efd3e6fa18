use super::*;

fn arguments(spec: &str, kind: Kind) -> String {
    let spec: ToolSpec<'_> = serde_json::from_str(spec).unwrap();
    let mut tools = Vec::new();
    Tool::read(vec![spec], None, &mut tools);
    let input = ToolInput { text: "do it".to_owned(), agent: "other".to_owned(), ..ToolInput::default() };
    kind.pick(&tools).unwrap().arguments(kind, &input)
}

#[test]
fn each_tool_gets_what_it_wants() {
    let cases = [
        (Kind::Shell, r#"{"name":"Bash"}"#, r#"{"command":"(do it)"}"#),
        (
            Kind::Shell,
            r#"{"name":"Bash","input_schema":{"properties":{"command":{},"description":{}}}}"#,
            r#"{"command":"(do it)","description":"Run a command"}"#,
        ),
        (Kind::Shell, r#"{"type":"function","name":"exec_command"}"#, r#"{"cmd":"do it"}"#),
        (
            Kind::Shell,
            r#"{"name":"shell","parameters":{"properties":{"command":{"type":"array"}}}}"#,
            r#"{"command":["bash","-lc","do it"]}"#,
        ),
        (
            Kind::Shell,
            r#"{"type":"function","function":{"name":"shell","parameters":{"properties":{"cmd":{}}}}}"#,
            r#"{"cmd":"do it"}"#,
        ),
        (Kind::Ask, r#"{"name":"ask_user"}"#, r#"{"question":"do it"}"#),
        (
            Kind::Ask,
            r#"{"name":"ask_user","parameters":{"properties":{"question":{},"options":{"items":{"type":"string"}}}}}"#,
            r#"{"options":["yes","no"],"question":"do it"}"#,
        ),
        (Kind::Plan, r#"{"name":"ExitPlanMode"}"#, r#"{"plan":"do it"}"#),
        (Kind::Spawn, r#"{"name":"spawn_agent"}"#, r#"{"agent":"other","message":"do it","mode":"wait"}"#),
        (
            Kind::Spawn,
            r#"{"name":"Agent","input_schema":{"properties":{"prompt":{}}}}"#,
            r#"{"description":"other","prompt":"do it","subagent_type":"general-purpose","run_in_background":false}"#,
        ),
    ];
    for (kind, spec, expected) in cases {
        let (made, expected): (Value, Value) =
            (serde_json::from_str(&arguments(spec, kind)).unwrap(), serde_json::from_str(expected).unwrap());
        assert_eq!(made, expected, "{spec}");
    }
}

#[test]
fn a_word_for_the_shell_is_quoted_where_it_must_be() {
    assert_eq!(shell_word("hello there 1.5"), "hello there 1.5");
    assert_eq!(shell_word("it's $(x)"), r"'it'\''s $(x)'");
    assert_eq!(shell_word("-n"), "'-n'");
}

#[test]
fn a_command_is_left_behind_where_the_tool_can_do_that() {
    let input = ToolInput { text: "do it".to_owned(), later: true, ..ToolInput::default() };
    let made = |properties: &str| {
        let spec = format!(r#"{{"name":"Bash","input_schema":{{"properties":{{{properties}}}}}}}"#);
        let mut tools = Vec::new();
        Tool::read(vec![serde_json::from_str(&spec).unwrap()], None, &mut tools);
        serde_json::from_str::<Value>(&tools[0].arguments(Kind::Shell, &input)).unwrap()
    };
    assert_eq!(made(r#""run_in_background":{}"#), json!({"command": "(do it)", "run_in_background": true}));
    assert_eq!(made(""), json!({"command": "(do it)"}));
}
