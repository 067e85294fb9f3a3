//! The binary: calls the library and ends with its code.

fn main() -> std::process::ExitCode {
    decode::run().into()
}
