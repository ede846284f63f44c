//! How far what takes long is, on standard error where it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over so many of something; `more` is what else it shows. It shows nothing where that is not wanted.
pub(super) fn bar(all: u64, what: &str, more: &str, shown: bool) -> ProgressBar {
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(all), target);
    if let Ok(style) = ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {what}{more}, {{eta}} left")) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal whose lines are kept.
    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<Mutex<String>>);

    impl TermLike for Lines {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("nobody panics with it").push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bar_says_how_many_of_what_are_done() {
        let terminal = Lines::default();
        let bar = bar(40, "settings", "", true);
        bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        bar.set_position(10);
        bar.force_draw();
        let shown = terminal.0.lock().expect("nobody panics with it").clone();
        assert!(shown.contains(" 10/40 settings, ") && shown.contains(" left"), "{shown:?}");
    }
}
