//! The table: one line a row, columns as wide as what stands in them.

/// One comparison. `goal` bounds `ratio` where there is another to compare with, else `ours` itself.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) against: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
    /// Ours over theirs, or over the limit.
    pub(crate) ratio: Option<f64>,
    pub(crate) goal: Goal,
}

/// What a row is held to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// Ours over theirs is at most this.
    Ratio(f64),
    /// Ours is within the limit that stands in the column of theirs.
    Limit,
    /// Told, not judged.
    Information,
}

impl Row {
    fn cells(&self) -> [String; 7] {
        let met = |met: bool| if met { "met" } else { "NOT MET" }.to_owned();
        let ratio = self.ratio.unwrap_or(f64::NAN);
        let (goal, verdict) = match self.goal {
            Goal::Ratio(most) => (format!("≤ {most:.2}"), met(ratio <= most)),
            Goal::Limit => ("≤ 1.00".to_owned(), met(ratio <= 1.0)),
            Goal::Information => (String::new(), String::new()),
        };
        let shown = self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        [self.what.clone(), self.against.clone(), self.ours.clone(), self.theirs.clone(), shown, goal, verdict]
    }
}

/// All rows under their headings.
pub(crate) fn table(rows: &[Row]) -> String {
    let head = ["what", "against", "decode", "the other", "ratio", "goal", ""].map(str::to_owned);
    let lines: Vec<[String; 7]> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The middle of several measurements.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}
