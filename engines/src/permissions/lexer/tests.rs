//! Lines, and what a shell makes of them.

use super::*;

/// The commands, an open word marked by `?`.
fn read(line: &str) -> Vec<String> {
    let word = |word: &Word| format!("{}{}", word.text, if word.is_open { "?" } else { "" });
    let command = |command: &Command| command.iter().map(word).collect::<Vec<_>>().join("|");
    commands(line).unwrap().iter().map(command).collect()
}

#[test]
fn a_line_is_read_as_a_shell_reads_it() {
    let cases: [(&str, &[&str]); 23] = [
        ("a b;c", &["a|b", "c"]),
        ("a 'b c' \"d;e\" f\\ g", &["a|b c|d;e|f g"]),
        ("a''b \"\" c", &["ab||c"]),
        ("$'\\x72\\155' $'a\\'b'", &["rm|a'b"]),
        ("a $b \"$c\" ${d} $'e'", &["d", "a|?|?|?|e"]),
        ("a$IFS-b", &["a-b?"]),
        ("a $(b c) d", &["b|c", "a|?|d"]),
        ("a `b \\`c\\`` d", &["c", "b|?", "a|?|d"]),
        ("a \"$(b \"c d\")\"", &["b|c d", "a|?"]),
        ("a > b c 2>&1 &>d e", &["a|c|e"]),
        ("3<a b {fd}>c d", &["b|d"]),
        ("a <(b c) >d", &["b|c", "a|?"]),
        ("a && b || c & d | e |& f", &["a", "b", "c", "d", "e", "f"]),
        ("{ a; b; }", &["a", "b"]),
        ("a {b,c} {} {d}", &["a|{b,c}?|{}|{d}"]),
        ("(a b)", &["a|b"]),
        ("2>&- a >&2 b <<-c d <<<e f", &["a|b|d|f"]),
        ("a # b; c\nd", &["a", "d"]),
        ("a#b", &["a#b"]),
        ("a \\\nb", &["a|b"]),
        ("[ -f a ] && b [c] d*", &["[|-f|a|]", "b|[c]?|d*?"]),
        ("a $((1 + $(b)))", &["b", "1|+|?", "a|?"]),
        ("a \"b", &["a|b"]),
    ];
    for (line, expected) in cases {
        assert_eq!(read(line), expected, "{line}");
    }
}

#[test]
fn what_is_nested_too_deep_is_not_read() {
    assert_eq!(commands(&"$(".repeat(100)), None);
    assert!(commands(&"(".repeat(100_000)).is_some());
}
