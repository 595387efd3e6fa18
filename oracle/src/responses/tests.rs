use super::*;

#[test]
fn the_frame_around_an_output_is_taken_off() {
    let cases = [
        ("hi\n", "hi\n"),
        ("Chunk ID: 1\nWall time: 1.0 seconds\nProcess exited with code 0\nOutput:\nhi\n", "hi\n"),
        ("Exit code: 0\nWall time: 1 seconds\nOutput:\n{}", "{}"),
        (r#"{"output":"hi\n","metadata":{"exit_code":0}}"#, "hi\n"),
        (r#"{"output":"hi"}"#, r#"{"output":"hi"}"#),
        ("Wall time flies", "Wall time flies"),
    ];
    for (text, expected) in cases {
        assert_eq!(unframed(text), expected, "{text}");
    }
}
