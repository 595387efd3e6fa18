//! What a replacement has changed, as a small diff.

use std::fmt::Write;

use super::text;

/// How many changes are shown.
const SHOWN: usize = 5;

/// How much of each side is shown of one change.
const SIDE_BYTES: usize = 4 * 1024;

/// How many lines are shown before and after a change.
const CONTEXT: usize = 2;

/// The number of the line that a place is in.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Whole lines, with the lines around them; the numbers are those before the change.
pub(super) fn replaced(before: &str, places: &[usize], old: &str, new: &str) -> String {
    let mut diff = String::new();
    for at in places.iter().take(SHOWN) {
        let start = before[..*at].rfind('\n').map_or(0, |end| end + 1);
        let after = at + old.len();
        // An old text that ends a line does not touch the next one.
        let is_whole_line = old.ends_with('\n') && (new.is_empty() || new.ends_with('\n'));
        let rest = if is_whole_line { 0 } else { before[after..].find('\n').unwrap_or(before.len() - after) };
        let (lead, trail) = (&before[start..*at], &before[after..after + rest]);

        let _ = writeln!(diff, "@@ line {} @@", line_at(before, *at));
        let above: Vec<&str> = before[..start].lines().rev().take(CONTEXT).collect();
        // Lines that are not taken out as a whole keep their end, even if nothing is left on them.
        let end = |text: &str| if is_whole_line || text.ends_with('\n') { "" } else { "\n" };
        above.iter().rev().for_each(|line| push(&mut diff, ' ', &format!("{line}\n")));
        for (sign, text) in [('-', format!("{lead}{old}{trail}")), ('+', format!("{lead}{new}{trail}"))] {
            push(&mut diff, sign, &format!("{text}{}", end(&text)));
        }
        let below = before[after + rest..].strip_prefix('\n').unwrap_or(&before[after + rest..]);
        below.lines().take(CONTEXT).for_each(|line| push(&mut diff, ' ', &format!("{line}\n")));
    }
    if places.len() > SHOWN {
        let _ = writeln!(diff, "[… {} more …]", places.len() - SHOWN);
    }
    diff
}

fn push(diff: &mut String, sign: char, lines: &str) {
    let shown = text::fitting(lines, SIDE_BYTES);
    for line in shown.lines() {
        let _ = writeln!(diff, "{sign}{line}");
    }
    if shown.len() < lines.len() {
        let _ = writeln!(diff, "{sign}[… {} bytes left out …]", lines.len() - shown.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_shown_whole_and_in_their_place() {
        let before = "one\ntwo\nthree\nfour\nfive\nsix\n";
        for (old, new, expected) in [
            ("ou", "OU", "@@ line 4 @@\n two\n three\n-four\n+fOUr\n five\n six\n"),
            ("one\n", "", "@@ line 1 @@\n-one\n two\n three\n"),
            ("three", "", "@@ line 3 @@\n one\n two\n-three\n+\n four\n five\n"),
            ("five\nsix", "5\n6", "@@ line 5 @@\n three\n four\n-five\n-six\n+5\n+6\n"),
            ("two\n", "2 ", "@@ line 2 @@\n one\n-two\n-three\n+2 three\n four\n five\n"),
        ] {
            let at = before.find(old).unwrap();
            assert_eq!(replaced(before, &[at], old, new), expected, "{old:?}");
        }
    }

    #[test]
    fn of_many_changes_some_are_shown_and_the_rest_counted() {
        let before = "a\n".repeat(9);
        let places: Vec<usize> = before.match_indices('a').map(|(at, _)| at).collect();
        let diff = replaced(&before, &places, "a", "b");
        assert_eq!(diff.matches("@@ line").count(), SHOWN);
        assert!(diff.ends_with("[… 4 more …]\n"));
    }
}
