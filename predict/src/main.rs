//! The program `predict`.

fn main() -> std::process::ExitCode {
    joulecast_predict::main()
}
