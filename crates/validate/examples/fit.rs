//! Fits the model's constants to the measurements that they come from, and prints both.

fn main() -> pando_base::Result<()> {
    println!("{:<38} {:>5} {:>9} {:>7}  how", "constant", "rows", "fitted", "held");
    for fit in pando_validate::fit::fits()? {
        println!("{:<38} {:>5} {:>9.2} {:>7}  {}", fit.constant, fit.rows, fit.fitted, fit.held, fit.how);
    }
    Ok(())
}
