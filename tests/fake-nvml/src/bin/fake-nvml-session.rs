//! A program with sessions for tests to kill: `guardian JOURNAL` is the guardian, `hold FOLDER MHZ WATTS` begins a
//! session, applies a point, says `applied` and waits to be killed or for its input to end. The library is the one that
//! the environment names.

use joulecast_kernels::DeviceError;
use joulecast_kernels::nvml::{self, BoardChoice, NvmlControl};
use joulecast_kernels::settings::{GuardianCommand, Point, Session, guardian};
use joulecast_model::base::units::{Hertz, Watts};
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["guardian", journal] => guardian::main(Path::new(journal)),
        ["hold", folder, mhz, watts] => hold(Path::new(folder), mhz.parse().ok(), watts.parse().ok()),
        _ => return ExitCode::from(2),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // The session may be gone, and with it whoever reads this.
            let _ = writeln!(std::io::stderr(), "{e}");
            ExitCode::FAILURE
        }
    }
}

fn hold(folder: &Path, mhz: Option<f64>, watts: Option<f64>) -> Result<(), DeviceError> {
    let control = NvmlControl::new(nvml::open(None)?.board(&BoardChoice::Index(0))?);
    let mut session = Session::begin(control, folder, &GuardianCommand::this_program("guardian")?)?;
    session.apply(Point { core: mhz.map(Hertz::from_mhz), power_limit: watts.map(Watts::new) })?;
    println!("applied");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    session.finish()
}
