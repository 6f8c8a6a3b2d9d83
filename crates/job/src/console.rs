//! Messages to the user: on stderr, each line ours by its beginning.

/// Writes `gridmpi: ` and the message.
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::console::write(&format!($($arg)*))
    };
}
pub(crate) use say;

pub(crate) fn write(message: &str) {
    use std::io::Write;
    let mut text = String::new();
    for (index, line) in message.trim_end().lines().enumerate() {
        text.push_str(if index == 0 { "gridmpi: " } else { "         " });
        text.push_str(line);
        text.push('\n');
    }
    // Nobody may be there to read it any more.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
