//! Operators on strings. The graph has none: what they work on must be known when the model is imported.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::{Text, Value};
use pando_base::{DType, Result, Shape, Tensor};
use std::rc::Rc;

fn text(shape: Shape, strings: Vec<String>) -> Value {
    Value::Text(Rc::new(Text { shape, strings }))
}

/// The shape two broadcast to, and for each of its elements the positions in both.
pub(super) fn broadcast(a: &Shape, b: &Shape) -> Result<(Shape, Vec<(usize, usize)>)> {
    let known = |shape: &Shape| pando_graph::known_dims(shape);
    let dims = crate::ctx::joined(&known(a), &known(b))?;
    let shape: Shape = dims.iter().filter_map(pando_graph::Dim::known).collect();
    let place = |own: &Shape, index: &[u64]| -> usize {
        let first = index.len() - own.rank();
        let along = own.iter().zip(own.strides()).zip(&index[first..]);
        along.map(|((&size, stride), &at)| if size == 1 { 0 } else { at * stride }).sum::<u64>() as usize
    };
    let pairs = shape.indices().map(|index| (place(a, &index), place(b, &index))).collect();
    Ok((shape, pairs))
}

pub(super) fn concat(c: &mut Ctx) -> Result<Vec<Value>> {
    let (x, y) = (c.text(0)?, c.text(1)?);
    let (shape, pairs) = broadcast(&x.shape, &y.shape)?;
    let strings = pairs.iter().map(|&(a, b)| format!("{}{}", x.strings[a], y.strings[b])).collect();
    Ok(vec![text(shape, strings)])
}

/// Pieces, filled up with empty ones to the same number, and how many there were.
pub(super) fn split(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.text(0)?;
    let delimiter = c.string("delimiter", "");
    let most = c.int_opt("maxsplit").and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX - 1);
    let pieces: Vec<Vec<String>> =
        x.strings.iter().map(|string| split_one(string, &delimiter, most)).collect();
    let width = pieces.iter().map(Vec::len).max().unwrap_or(0);
    let counts: Vec<i128> = pieces.iter().map(|row| row.len() as i128).collect();
    let filled = pieces.into_iter().flat_map(|mut row| {
        row.resize(width, String::new());
        row
    });
    let shape: Shape = x.shape.iter().copied().chain([width as u64]).collect();
    let counts = c.b.constant(Tensor::from_ints(DType::I64, x.shape.clone(), &counts));
    Ok(vec![text(shape, filled.collect()), Value::tensor(c.b, counts)])
}

/// Without a delimiter runs of white space separate, and none stand at the ends.
fn split_one(string: &str, delimiter: &str, most: usize) -> Vec<String> {
    if !delimiter.is_empty() {
        return string.splitn(most.saturating_add(1), delimiter).map(Into::into).collect();
    }
    let mut pieces = Vec::new();
    let mut rest = string.trim_start();
    while !rest.is_empty() && pieces.len() < most {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        pieces.push(rest[..end].to_string());
        rest = rest[end..].trim_start();
    }
    if !rest.is_empty() {
        pieces.push(rest.trim_end().to_string());
    }
    pieces
}

/// Stop words removed and the case changed; at least one string, perhaps empty, is left.
pub(super) fn normalizer(c: &mut Ctx) -> Result<Vec<Value>> {
    let x = c.text(0)?;
    let stops = c.strings("stopwords").unwrap_or_default();
    let sensitive = c.flag("is_case_sensitive", false);
    let is_stop = |string: &String| match sensitive {
        true => stops.contains(string),
        false => stops.iter().any(|stop| stop.to_lowercase() == string.to_lowercase()),
    };
    let action = c.string("case_change_action", "NONE");
    let changed = |string: &String| match action.as_str() {
        "LOWER" => string.to_lowercase(),
        "UPPER" => string.to_uppercase(),
        _ => string.clone(),
    };
    let mut strings: Vec<String> = x.strings.iter().filter(|string| !is_stop(string)).map(changed).collect();
    if strings.is_empty() {
        strings.push(String::new());
    }
    let count = strings.len() as u64;
    let shape = if x.shape.rank() == 2 { Shape::from([1, count]) } else { Shape::from([count]) };
    Ok(vec![text(shape, strings)])
}

/// Counts of runs of items, possibly with gaps, weighted.
pub(super) fn tf_idf(c: &mut Ctx) -> Result<Vec<Value>> {
    let (shape, items): (Shape, Vec<String>) = match c.value(0)? {
        Value::Text(text) => (text.shape.clone(), text.strings.clone()),
        _ => {
            let known = c.known_tensor(0)?;
            (known.shape().clone(), known.to_f64().iter().map(|item| (*item as i64).to_string()).collect())
        }
    };
    let grams = Grams::read(c)?;
    let width = grams.places.iter().copied().max().unwrap_or(-1).max(-1) + 1;
    if !(0..1 << 20).contains(&width) || shape.rank() > 2 {
        return Err(errors::invalid("the result has no sensible size"));
    }
    let row_size = shape.last().copied().unwrap_or(1).max(1) as usize;
    let mode = c.string("mode", "TF");
    let mut values = Vec::new();
    for row in items.chunks(row_size) {
        let counts = grams.count(row, width as usize);
        values.extend(counts.into_iter().enumerate().map(|(place, count)| match mode.as_str() {
            "TF" => count,
            "IDF" if count > 0.0 => grams.weight(place),
            "IDF" => 0.0,
            _ => count * grams.weight(place),
        }));
    }
    let out: Vec<u64> = if shape.rank() == 2 { vec![shape[0], width as u64] } else { vec![width as u64] };
    values.resize(out.iter().product::<u64>() as usize, 0.0);
    let id = c.b.constant(Tensor::from_f64(DType::F32, out, &values));
    Ok(vec![Value::tensor(c.b, id)])
}

/// The runs that are counted, and where.
struct Grams {
    runs: Vec<Vec<String>>,
    places: Vec<i64>,
    weights: Vec<f64>,
    lengths: (usize, usize),
    skips: usize,
}

impl Grams {
    fn read(c: &Ctx) -> Result<Grams> {
        let pool = match c.ints("pool_int64s") {
            Some(pool) => pool.iter().map(i64::to_string).collect(),
            None => c.strings("pool_strings").unwrap_or_default(),
        };
        let begins = c.ints("ngram_counts").ok_or_else(|| errors::missing_attribute("ngram_counts"))?;
        let mut runs = Vec::new();
        for (length, &begin) in begins.iter().enumerate() {
            let end = begins.get(length + 1).map_or(pool.len(), |&end| end.max(0) as usize);
            let part = pool.get(begin.max(0) as usize..end).unwrap_or_default();
            runs.extend(part.chunks(length + 1).map(<[String]>::to_vec));
        }
        let places = c.ints("ngram_indexes").unwrap_or_default();
        let positive = |name: &str| c.int(name, 1).clamp(0, 64) as usize;
        Ok(Grams {
            runs,
            places,
            weights: c.floats("weights").unwrap_or_default(),
            lengths: (positive("min_gram_length"), positive("max_gram_length")),
            skips: c.int("max_skip_count", 0).clamp(0, 1024) as usize,
        })
    }

    fn weight(&self, place: usize) -> f64 {
        let run = self.places.iter().position(|&other| other == place as i64);
        run.and_then(|run| self.weights.get(run)).copied().unwrap_or(1.0)
    }

    fn count(&self, row: &[String], width: usize) -> Vec<f64> {
        let mut counts = vec![0.0; width];
        for (run, &place) in self.runs.iter().zip(&self.places) {
            if !(self.lengths.0..=self.lengths.1).contains(&run.len()) || place < 0 {
                continue;
            }
            // Single items have no gaps.
            let skips = if run.len() == 1 { 0 } else { self.skips };
            for step in 1..=skips + 1 {
                let fits = |start: &usize| start + (run.len() - 1) * step < row.len();
                let found = (0..row.len())
                    .take_while(fits)
                    .filter(|&start| run.iter().enumerate().all(|(i, item)| *item == row[start + i * step]));
                counts[place as usize] += found.count() as f64;
            }
        }
        counts
    }
}
