#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decode::fuzzing::rules(bytes));
