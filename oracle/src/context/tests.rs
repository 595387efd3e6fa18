use super::*;

/// `u:` a user's text, `a:` a final answer, `c:` a shell call, `r:` its result.
fn conversation<'a>(script: &[&'a str]) -> Conversation<'a> {
    let mut made = Conversation::default();
    for entry in script {
        match entry.split_at(2) {
            ("u:", text) => made.user(vec![Cow::Borrowed(text)]),
            ("a:", text) => made.answer(text),
            ("c:", id) => made.call(Cow::Borrowed(id), "bash"),
            ("r:", rest) => {
                let (id, text) = rest.split_once(' ').unwrap();
                made.result(Cow::Borrowed(id), text, text);
            }
            _ => panic!("{entry}"),
        }
    }
    made
}

fn said(script: &[&str]) -> Vec<String> {
    let show = |want| match want {
        Want::Say(text) => text,
        Want::Count(to) => format!("#{to}"),
        Want::Use(kind, input) => format!("{kind:?} {}", input.text),
    };
    conversation(script).turn().wants.into_iter().map(show).collect()
}

#[test]
fn a_turn_answers_what_came_since_the_last_final_answer() {
    let cases: Vec<(&[&str], Vec<&str>)> = vec![
        (&[], vec![]),
        (&["u:x = 5"], vec!["X = 5"]),
        (&["u:X = 5", "a:X = 5", "u:add 1 to x"], vec!["X = 6"]),
        (&["u:add 1 to x", "u:what is x"], vec!["I don't know X", "I don't know X"]),
        (&["u:X = 5", "u:add 1 to x\nwhat is X"], vec!["X = 5", "X = 6", "X = 6"]),
        (
            &["u:X = 5", "a:", "u:hello\n\nX = 9223372036854775807, add 1 to X"],
            vec!["I heard: hello", "X = 9223372036854775807", "X = 9223372036854775807"],
        ),
        (&["u:count to 3"], vec!["#3"]),
        (&["u:sleep 1 then say a"], vec!["Shell sleep 1 && echo a"]),
        (&["u:sleep 1 then say a", "c:1", "u:what is x", "r:1 a\n"], vec!["a", "I don't know X"]),
        (&["u:sleep 1 then say a", "c:1"], vec![""]),
        (&["u:sleep 1 then say a\nsleep 2 then say b", "c:1", "r:1 a"], vec!["a", "Shell sleep 2 && echo b"]),
        (
            &["u:sleep 1 then say a", "c:1", "r:1 a", "a:a", "u:sleep 1 then say b"],
            vec!["Shell sleep 1 && echo b"],
        ),
        (&["u:say a", "u:[Request interrupted by user]", "u:say b"], vec!["b"]),
        (&["u:ask: who?"], vec!["Ask who?"]),
        (&["u:plan: go"], vec!["Plan go"]),
        (&["u:slow 1"], vec![]),
    ];
    for (script, expected) in cases {
        assert_eq!(said(script), expected, "{script:?}");
    }
}

#[test]
fn what_is_not_understood_comes_back_in_part() {
    let long = format!("u:{}", "é".repeat(500));
    assert_eq!(said(&[&long]), [format!("I heard: {}", "é".repeat(200))]);
}

#[test]
fn slow_and_fail_hold_for_the_newest_message_only() {
    let turn = conversation(&["u:slow 2, fail 500", "u:say a"]).turn();
    assert_eq!((turn.slow, turn.fails), (None, vec![]));
    let turn = conversation(&["u:say a", "u:slow 2, fail 500"]).turn();
    assert_eq!(turn.slow, Some(Duration::from_secs(2)));
    assert_eq!(turn.fails, [Fail { status: 500, once: None }]);
    assert_eq!(conversation(&["u:fail 500", "a:no"]).turn().fails, []);
}

#[test]
fn once_is_known_by_the_text_and_its_place() {
    let key = |script: &[&str]| conversation(script).turn().fails[0].once;
    assert_eq!(key(&["u:fail 500 once"]), key(&["u:fail 500 once", "c:1", "r:1 a"]));
    assert_ne!(key(&["u:fail 500 once"]), key(&["u:fail 500 once", "a:", "u:fail 500 once"]));
    let both = conversation(&["u:fail 500 once, fail 429 once"]).turn().fails;
    assert_ne!(both[0].once, both[1].once);
}

#[test]
fn usage_counts_words_and_what_came_before_the_last_of_several_messages() {
    let mut made = conversation(&[]);
    made.aside("you are  an\noracle");
    made.user(vec![Cow::Borrowed("X = 5")]);
    assert_eq!(made.usage("X = 5"), Usage { input_tokens: 7, cached_tokens: 0, output_tokens: 3 });
    made.answer("X = 5");
    made.user(vec![Cow::Borrowed("say a")]);
    assert_eq!(made.usage("a"), Usage { input_tokens: 12, cached_tokens: 10, output_tokens: 1 });
}
