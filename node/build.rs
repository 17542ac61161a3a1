//! Compresses the files of the console, so that the program carries and sends them so.

/// The files, from the folder of the crate.
const PAGE: &str = "src/http/console/page";

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed={PAGE}");
    #[cfg(feature = "console")]
    compress()?;
    Ok(())
}

#[cfg(feature = "console")]
fn compress() -> std::io::Result<()> {
    use std::io::Write;
    use std::path::Path;
    use std::{env, fs};
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("console");
    fs::create_dir_all(&out)?;
    for file in fs::read_dir(PAGE)? {
        let path = file?.path();
        let name = path.file_name().expect("a file").to_string_lossy();
        let level = flate2::Compression::best();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), level);
        gzip.write_all(&fs::read(&path)?)?;
        fs::write(out.join(format!("{name}.gz")), gzip.finish()?)?;
    }
    Ok(())
}
