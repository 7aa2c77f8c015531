//! The parameters of the queries: those that a seed draws, for the planted skew or beside it.

use std::fmt;
use std::str::FromStr;

use arrow::array::types::Date32Type;
use arrow::compute::kernels::cast_utils::Parser;
use tpchgen::distribution::{Distribution, Distributions};
use tpchgen::random::RowRandomInt;

use super::keys::NATIONS;
use super::stream::seed_after;
use crate::error::{Result, TpchError};
use crate::queries::{Query, TEMPLATES, Template};
use crate::scale::Scale;

/// Which values of the skewed columns the queries ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bindings {
    /// The values that the skew is planted in.
    #[default]
    Skewed,
    /// The values beside it: the same tables, but none of the oversized keys.
    Normal,
}

impl Bindings {
    /// The name in reports and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skewed => "skewed",
            Self::Normal => "normal",
        }
    }
}

impl fmt::Display for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Bindings {
    type Err = TpchError;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Skewed, Self::Normal]
            .into_iter()
            .find(|bindings| bindings.name() == text)
            .ok_or_else(|| TpchError::Bindings {
                given: text.to_string(),
            })
    }
}

/// A seed of the generator of parameters: 1 to 2147483646.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(i64);

impl Seed {
    /// The largest seed; that and zero would draw the same number forever after.
    pub const MAX: i64 = 2_147_483_646;

    /// The seed as a number.
    pub fn number(self) -> i64 {
        self.0
    }
}

impl Default for Seed {
    /// The seed of the queries in the Themis paper (PVLDB 2024).
    fn default() -> Self {
        Self(1_648_967_542)
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Seed {
    type Err = TpchError;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim().parse() {
            Ok(seed) if (1..=Self::MAX).contains(&seed) => Ok(Self(seed)),
            _ => Err(TpchError::Seed {
                given: text.to_string(),
                max: Self::MAX,
            }),
        }
    }
}

/// What decides the text of the queries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Binding {
    /// Which kind of values.
    pub bindings: Bindings,
    /// Which of them.
    pub seed: Seed,
    /// The scale of the data, on which a fraction in query 11 depends.
    pub scale: Scale,
}

impl Binding {
    /// The parameters of a query, in the order of their places in the text; none for a number that no query has.
    pub fn parameters(&self, number: u8) -> Vec<String> {
        let mut draws = Draws(RowRandomInt::new(
            seed_after(self.seed.0, u64::from(number)),
            1,
        ));
        match self.bindings {
            Bindings::Skewed => skewed(number, &mut draws, self.scale),
            Bindings::Normal => normal(number, &mut draws, self.scale),
        }
    }

    /// A query with its parameters.
    ///
    /// # Errors
    /// [`TpchError::Query`] when there is none with this number, [`TpchError::NoSuchDate`] when the seed draws a day that
    /// its month does not have: one seed in 31 does, for query 3 with skewed bindings.
    pub fn query(&self, number: u8) -> Result<Query> {
        let template = template(number)?;
        let parameters = self.parameters(number);
        let no_day = parameters
            .iter()
            .find(|parameter| looks_like_date(parameter) && Date32Type::parse(parameter).is_none());
        if let Some(date) = no_day {
            return Err(TpchError::NoSuchDate {
                seed: self.seed.0,
                query: number,
                date: date.clone(),
            });
        }
        let mut query = template.with(&parameters);
        if number == 21 && self.scale.factor() > SQUARE_ENDS {
            let reference = Template {
                text: include_str!("../../queries/jcch/q21_reference.sql"),
                ..template
            };
            query.reference = Some(reference.with(&parameters).sql);
        }
        Ok(query)
    }
}

/// The largest scale at which query 21 is verified by its own text.
///
/// Plain DataFusion compares each line of an oversized order with each other one, twice: seconds at scale 0.01, a
/// hundred times as long at 0.1. Beyond, the reference asks for the first and last supplier of each order instead.
const SQUARE_ENDS: f64 = 0.01;

/// The text of a query, which is TPC-H's but for two.
fn template(number: u8) -> Result<Template> {
    let common = TEMPLATES
        .iter()
        .find(|template| template.number == number)
        .ok_or_else(|| TpchError::Query {
            given: number.to_string(),
        })?;
    let text = match number {
        10 => include_str!("../../queries/jcch/q10.sql"),
        18 => include_str!("../../queries/jcch/q18.sql"),
        _ => common.text,
    };
    Ok(Template { text, ..*common })
}

fn looks_like_date(text: &str) -> bool {
    let shape = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
    text.bytes().map(shape).eq(*b"0000-00-00")
}

/// The type of the populous parts, and their name.
const TYPE: &str = "SHINY MINED GOLD";
const NAME: &str = "shiny mined gold";

/// One query's stream of pseudo-random numbers.
struct Draws(RowRandomInt);

impl Draws {
    /// A number from `low` to `high`.
    fn between(&mut self, low: i32, high: i32) -> i32 {
        self.0.next_int(low, high)
    }

    /// A place in an array or text, from 0 to `last`.
    fn index(&mut self, last: usize) -> usize {
        self.between(0, last as i32) as usize
    }

    fn pick(&mut self, from: &'static Distribution) -> &'static str {
        from.random_value(&mut self.0)
    }

    fn pick_equal(&mut self, from: &[&'static str]) -> &'static str {
        from[self.index(from.len() - 1)]
    }

    /// Draws that only move the stream.
    fn skip(&mut self, draws: usize) {
        for _ in 0..draws {
            self.0.next_rand();
        }
    }

    /// Two digits after `Brand#`, each from 1 to a largest one.
    fn brand(&mut self, largest: i32) -> String {
        let first = self.between(1, 5);
        format!("Brand#{first}{}", self.between(1, largest))
    }

    /// A small nation of any region.
    fn small_nation(&mut self) -> &'static str {
        let region = self.index(4);
        nation(region, 1 + self.index(3))
    }

    /// The large nation of any region.
    fn large_nation(&mut self) -> &'static str {
        nation(self.index(4), 0)
    }

    /// The numbers from `first` on, shuffled.
    fn shuffled(&mut self, first: i32, count: usize) -> Vec<i32> {
        let mut numbers: Vec<i32> = (first..).take(count).collect();
        for place in 0..count {
            let other = self.between(place as i32, count as i32 - 1);
            numbers.swap(place, other as usize);
        }
        numbers
    }
}

/// The name of a region's large nation (0) or of one of its small ones (1 to 4).
fn nation(region: usize, number: usize) -> &'static str {
    let key = NATIONS[region][number];
    Distributions::static_default()
        .nations()
        .get_value(usize::from(key))
}

fn region(number: usize) -> &'static str {
    Distributions::static_default().regions().get_value(number)
}

fn date(year: i32, month: i32, day: i32) -> String {
    format!("{year}-{month:02}-{day:02}")
}

fn texts<const N: usize>(parameters: [&str; N]) -> Vec<String> {
    parameters.map(str::to_string).to_vec()
}

/// The first words of a part type.
fn words(part_type: &str, count: usize) -> String {
    let words: Vec<&str> = part_type.split(' ').take(count).collect();
    words.join(" ")
}

/// The parameters whose meaning the two kinds of bindings share: drawn alike, then replaced where the skew is.
struct Common {
    distributions: &'static Distributions,
}

impl Common {
    fn new() -> Self {
        Self {
            distributions: Distributions::static_default(),
        }
    }

    fn second(&self, draws: &mut Draws) -> [String; 3] {
        let size = draws.between(1, 50);
        let part_type = draws.pick(self.distributions.part_types());
        let last = part_type.rsplit(' ').next().unwrap_or_default();
        let region = draws.pick(self.distributions.regions());
        [size.to_string(), last.to_string(), region.to_string()]
    }

    fn twelfth(&self, draws: &mut Draws) -> [&'static str; 2] {
        let modes = self.distributions.ship_modes();
        let first = draws.pick(modes);
        let mut second = draws.pick(modes);
        while second == first {
            second = draws.pick(modes);
        }
        draws.skip(1);
        [first, second]
    }

    fn sixteenth(&self, draws: &mut Draws) -> Vec<String> {
        let brand = draws.brand(4);
        let part_type = draws.pick(self.distributions.part_types());
        let sizes = draws.shuffled(1, 50).into_iter().take(8);
        [brand, words(part_type, 2)]
            .into_iter()
            .chain(sizes.map(|size| size.to_string()))
            .collect()
    }

    fn nineteenth(draws: &mut Draws) -> Vec<String> {
        let brands = [draws.brand(5), draws.brand(5), draws.brand(4)];
        let quantities =
            [(1, 10), (10, 20), (20, 30)].map(|(low, high)| draws.between(low, high).to_string());
        brands.into_iter().chain(quantities).collect()
    }

    fn last(draws: &mut Draws) -> Vec<String> {
        let nations = draws.shuffled(0, 25).into_iter().take(7);
        nations.map(|nation| (10 + nation).to_string()).collect()
    }
}

/// Parameters beside the skew.
fn normal(number: u8, draws: &mut Draws, scale: Scale) -> Vec<String> {
    let common = Common::new();
    let distributions = common.distributions;
    match number {
        1 => vec![draws.between(60, 120).to_string()],
        2 => common.second(draws).to_vec(),
        3 => {
            let segment = draws.pick(distributions.market_segments());
            let day = 1 + draws.between(0, 30);
            texts([segment, &date(1995, 3, day)])
        }
        4 => {
            draws.skip(1);
            let turn = draws.between(0, 7);
            let month = if turn & 2 == 0 { 1 } else { 9 } + (turn & 1);
            vec![date(1995 + (turn >> 2), month, 1)]
        }
        5 => {
            let region = draws.pick(distributions.regions());
            texts([region, &date(1900 + draws.between(95, 96), 1, 1)])
        }
        6 => {
            let year = 1900 + draws.between(95, 96);
            let discount = format!("0.0{}", draws.between(2, 9));
            texts([
                &date(year, 1, 1),
                &discount,
                &draws.between(24, 25).to_string(),
            ])
        }
        7 => {
            let region = draws.index(4);
            let customer = draws.index(3);
            let mut supplier = draws.index(2);
            if supplier >= customer {
                supplier = (supplier + 1) % 4;
            }
            let (supplier, customer) = (nation(region, 1 + supplier), nation(region, 1 + customer));
            texts([supplier, customer, "1995-01-01", "1996-12-31"])
        }
        8 => {
            let part_type = draws.pick(distributions.part_types());
            let of_region = draws.index(4);
            let of_nation = (of_region + 1 + draws.index(3)) % 5;
            let nation = nation(of_nation, 1 + draws.index(3));
            texts([
                nation,
                region(of_region),
                part_type,
                "1995-01-01",
                "1996-12-31",
            ])
        }
        9 => texts([draws.pick(distributions.part_colors())]),
        10 => {
            let month = 1 + draws.between(0, 1);
            let day = draws.between(1, 25);
            vec![date(1995, month, day), date(1995, month + 3, day)]
        }
        11 => vec![draws.small_nation().to_string(), fraction(scale)],
        12 => {
            let [first, second] = common.twelfth(draws);
            texts([first, second, &date(1900 + draws.between(95, 96), 1, 1)])
        }
        13 => {
            draws.skip(2);
            let mut mark = |long: &'static str| {
                let start = draws.index(1);
                let end = long.len() - 1 + draws.index(1);
                &long[start..end]
            };
            texts([mark("1mine2"), mark("3gold4")])
        }
        14 | 15 => {
            let turn = draws.between(0, 16);
            let month = turn % 8 + if turn % 8 < 4 { 1 } else { 5 };
            vec![date(1995 + turn / 8, month, 1)]
        }
        16 => {
            let mut parameters = common.sixteenth(draws);
            // Size 1 is that of the populous parts.
            for parameter in parameters.iter_mut().filter(|text| *text == "1") {
                *parameter = "2".to_string();
            }
            parameters
        }
        17 => {
            let container = draws.pick(distributions.part_containers());
            texts([&draws.brand(4), container])
        }
        18 => texts([&draws.between(312, 315).to_string(), "50"]),
        19 => Common::nineteenth(draws),
        20 => {
            let color = draws.pick(distributions.part_colors());
            draws.skip(2);
            let nation = draws.small_nation();
            texts([color, &date(1900 + draws.between(95, 96), 1, 1), nation])
        }
        21 => {
            draws.skip(1);
            texts([draws.small_nation()])
        }
        22 => Common::last(draws),
        _ => Vec::new(),
    }
}

/// Parameters for the skew.
fn skewed(number: u8, draws: &mut Draws, scale: Scale) -> Vec<String> {
    let common = Common::new();
    let distributions = common.distributions;
    match number {
        2 => {
            let [_, _, region] = common.second(draws);
            texts(["1", &TYPE[draws.index(10)..], &region])
        }
        3 => {
            let segment = draws.pick(distributions.market_segments());
            texts([segment, &date(1993, 5, 29 + draws.between(0, 30) / 10)])
        }
        4 => {
            draws.skip(1);
            let turn = draws.between(0, 7);
            let year = [1992, 1993, 1994, 1997][(turn >> 1) as usize];
            vec![date(year, 5 + (turn & 1), 1)]
        }
        5 => {
            let region = draws.pick(distributions.regions());
            texts([region, &date(1900 + draws.between(93, 94), 1, 1)])
        }
        6 => {
            let year = 1900 + draws.between(93, 94);
            let discount = format!("0.0{}", draws.between(2, 9));
            texts([&date(year, 1, 1), &discount, "100"])
        }
        7 => {
            let customer = draws.index(4);
            let supplier = (customer + 1 + draws.index(3)) % 5;
            let (supplier, customer) = (nation(supplier, 0), nation(customer, 0));
            texts([supplier, customer, "1993-01-01", "1994-12-31"])
        }
        8 => {
            draws.skip(1);
            let number = draws.index(4);
            let (nation, region) = (nation(number, 0), region(number));
            texts([nation, region, TYPE, "1993-01-01", "1994-12-31"])
        }
        9 => {
            draws.skip(1);
            texts([&NAME[draws.index(10)..]])
        }
        10 => {
            let turn = draws.between(0, 5);
            let year = 1992 + turn + if turn > 2 { 2 } else { 0 };
            let first = 24 + draws.between(0, 4);
            vec![
                date(year, 5, first),
                date(year, 5, 29 + draws.between(0, 2)),
            ]
        }
        11 => vec![draws.large_nation().to_string(), fraction(scale)],
        12 => {
            let [first, second] = common.twelfth(draws);
            let hot = "REG AIR";
            let second = if first == hot { second } else { hot };
            texts([first, second, &date(1900 + draws.between(93, 94), 1, 1)])
        }
        13 => {
            let first = draws.pick_equal(&["special", "pending", "unusual", "express"]);
            let second = draws.pick_equal(&["packages", "requests", "accounts", "deposits"]);
            texts([first, second])
        }
        14 | 15 => {
            let turn = draws.between(0, 16);
            vec![date(1993 + turn / 8, 5 + turn % 4, 1)]
        }
        16 => {
            let mut parameters = common.sixteenth(draws);
            replace_last(&mut parameters, "1".to_string());
            parameters
        }
        17 => texts(["Brand#55", "LG BOX"]),
        18 => {
            // The normal value is drawn and left.
            draws.skip(1);
            texts([&(500 + draws.between(312, 315)).to_string(), "100"])
        }
        19 => {
            let mut parameters = Common::nineteenth(draws);
            replace_first(&mut parameters, &["Brand#00", "Brand#00", "Brand#55"]);
            // Drawn in addition to the normal value.
            replace_last(&mut parameters, draws.between(41, 50).to_string());
            parameters
        }
        20 => {
            draws.skip(3);
            let nation = draws.large_nation();
            let name = &NAME[..draws.between(5, 16) as usize];
            texts([name, &date(1900 + draws.between(93, 94), 1, 1), nation])
        }
        21 => {
            draws.skip(1);
            texts([draws.large_nation()])
        }
        22 => {
            let mut parameters = Common::last(draws);
            // The countries of the populous customers' phone numbers.
            replace_first(&mut parameters, &["40", "50", "60", "70", "80"]);
            parameters
        }
        _ => normal(number, draws, scale),
    }
}

fn replace_first(parameters: &mut [String], by: &[&str]) {
    for (parameter, text) in parameters.iter_mut().zip(by) {
        *parameter = (*text).to_string();
    }
}

fn replace_last(parameters: &mut [String], by: String) {
    if let Some(last) = parameters.last_mut() {
        *last = by;
    }
}

/// The share of the stock that is important, which falls with the scale.
fn fraction(scale: Scale) -> String {
    format!("{:.10}", 0.0001 / scale.factor())
}
