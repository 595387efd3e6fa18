//! Messages as the CLI takes them.

use serde_json::{Value, json};

use crate::contract::{Attachment, InputMessage};
use crate::openai::attachments::{Kind, base64};

const PDF: &str = "application/pdf";

/// One line for these messages: they reach the model as one, joined by a blank line.
pub(super) fn line(uuid: &str, messages: &[InputMessage], is_plain_text: bool) -> Value {
    let text: Vec<_> = messages.iter().map(|message| &*message.text).collect();
    let text = text.join("\n\n");
    let files: Vec<_> = messages.iter().flat_map(|message| &message.attachments).map(block).collect();
    let content = if files.is_empty() {
        Value::String(text)
    } else {
        let said = (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}));
        files.into_iter().chain(said).collect()
    };
    let mut line = json!({
        "type": "user",
        "uuid": uuid,
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": null,
        // At the next boundary between tools; outside a turn it means nothing.
        "priority": "next",
    });
    if is_plain_text {
        // Neither `/command` nor `@file`.
        line["client_composed"] = Value::Bool(true);
    }
    line
}

/// A file as a content block.
pub(super) fn block(file: &Attachment) -> Value {
    let Attachment { name, media_type, data } = file;
    let source = |media_type: &str| json!({"type": "base64", "media_type": media_type, "data": base64(data)});
    match Kind::of(media_type) {
        Some(Kind::Image(media_type)) => json!({"type": "image", "source": source(media_type)}),
        Some(Kind::Text) => {
            let text = String::from_utf8_lossy(data).replace('\0', "\u{FFFD}");
            json!({"type": "text", "text": format!("File {name}:\n\n{text}")})
        }
        None if media_type == PDF => json!({"type": "document", "title": name, "source": source(PDF)}),
        None => {
            let text = format!("[The file {name} ({media_type}) cannot be shown to you.]");
            json!({"type": "text", "text": text})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_joined_and_files_stand_before_the_text() {
        let message =
            |text: &str| InputMessage { id: "1".to_owned(), text: text.to_owned(), attachments: Vec::new() };
        let line_of = |messages: &[InputMessage]| line("U", messages, true);
        let two = line_of(&[message("a\nb"), message("/c")]);
        assert_eq!(two["message"]["content"], "a\nb\n\n/c");
        assert_eq!(two["client_composed"], true);
        assert_eq!(two.to_string().lines().count(), 1);

        let mut with_file = message("look");
        let image = Attachment { name: "a.png".into(), media_type: "image/png".into(), data: "PNG".into() };
        let notes = Attachment { name: "n.txt".into(), media_type: "text/plain".into(), data: "hi".into() };
        with_file.attachments = vec![image, notes];
        let content = line_of(&[with_file])["message"]["content"].clone();
        assert_eq!(
            content[0]["source"],
            json!({"type": "base64", "media_type": "image/png", "data": "UE5H"})
        );
        assert_eq!(content[1]["text"], "File n.txt:\n\nhi");
        assert_eq!(content[2]["text"], "look");
    }
}
