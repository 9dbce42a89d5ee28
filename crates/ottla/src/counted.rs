//! Numbers with their noun, such as `1 problem` and `2 problems`.

/// For nouns with a regular plural.
pub fn counted(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        let all = [0, 1, 2].map(|number| counted(number, "move"));
        assert_eq!(all, ["0 moves", "1 move", "2 moves"]);
    }
}
