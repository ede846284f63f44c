//! Exit statuses of `predict` and `calibrate`: one rule for both. 0 is success.

/// It could not be done: a file that is missing, unreadable, malformed or contradicts another, a step that
/// `--require-fit` refuses, a device that fails, a load that no candidate or setting carries.
pub const FAILED: u8 = 1;
/// What was typed is wrong: an option or a value that does not exist (a GPU, network, layer kind ..., named with the
/// nearest that do), is out of range, or does not go with another. A path that looks like a file's is [`FAILED`]
/// where the file cannot be used.
pub const USAGE: u8 = 2;
/// Nothing is wrong, but there are no rows to work on; the message says where rows come from.
pub const NO_ROWS: u8 = 3;
/// Settings were asked for and not permitted: the device was observed as it was found.
pub const OBSERVED_ONLY: u8 = 4;
