//! Compresses the files of the console, so that the program carries and sends them so.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let page = Path::new("src/http/console/page");
    println!("cargo::rerun-if-changed={}", page.display());
    #[cfg(feature = "console")]
    compress(page)?;
    Ok(())
}

#[cfg(feature = "console")]
fn compress(page: &Path) -> io::Result<()> {
    use std::io::Write;
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("console");
    fs::create_dir_all(&out)?;
    for file in fs::read_dir(page)? {
        let path = file?.path();
        let name = path.file_name().expect("a file").to_string_lossy();
        let level = flate2::Compression::best();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), level);
        gzip.write_all(&fs::read(&path)?)?;
        fs::write(out.join(format!("{name}.gz")), gzip.finish()?)?;
    }
    Ok(())
}
