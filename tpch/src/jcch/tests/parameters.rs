//! Parameters that are known, the shape of all others, and dates that do not exist.

use std::collections::HashSet;
use std::fmt::Write;

use super::data::sha256;
use crate::jcch::{Binding, Bindings, Seed};
use crate::scale::Scale;

fn binding(bindings: Bindings, seed: &str) -> Binding {
    Binding {
        bindings,
        seed: seed.parse().expect("a seed"),
        scale: Scale::new(1.0).expect("a scale"),
    }
}

#[test]
fn the_default_seed_draws_the_published_parameters() {
    let known = [
        "71",
        "1,NY MINED GOLD,MIDDLE EAST",
        "HOUSEHOLD,1993-05-31",
        "1993-05-01",
        "AMERICA,1993-01-01",
        "1993-01-01,0.06,100",
        "MOROCCO,CHINA,1993-01-01,1994-12-31",
        "MOROCCO,AFRICA,SHINY MINED GOLD,1993-01-01,1994-12-31",
        "shiny mined gold",
        "1992-05-25,1992-05-29",
        "UNITED STATES,0.0001000000",
        "AIR,REG AIR,1994-01-01",
        "special,deposits",
        "1994-08-01",
        "1994-06-01",
        "Brand#11,SMALL ANODIZED,6,7,22,2,37,31,15,1",
        "Brand#55,LG BOX",
        "812,100",
        "Brand#00,Brand#00,Brand#55,2,19,50",
        "shiny mined,1993-01-01,GERMANY",
        "MOROCCO",
        "40,50,60,70,80,33,15",
    ];
    let binding = binding(Bindings::default(), &Seed::default().to_string());
    for (number, known) in (1..).zip(known) {
        assert_eq!(binding.parameters(number).join(","), known, "Q{number}");
    }
}

/// Where the reference draws a normal value before the one of the skew, a seed tells whether we do: the default one does not
/// for queries 18 and 19.
#[test]
fn normal_values_are_drawn_before_those_of_the_skew() {
    let parameters = |bindings, seed, number| binding(bindings, seed).parameters(number).join(",");
    let (skewed, normal) = (Bindings::Skewed, Bindings::Normal);
    for (bindings, seed, number, known) in [
        (skewed, "12964", 18, "814,100"),
        (skewed, "12964", 19, "Brand#00,Brand#00,Brand#55,2,12,41"),
        (normal, "12964", 18, "314,50"),
        (normal, "12964", 19, "Brand#32,Brand#23,Brand#13,2,12,24"),
        // Size 1 is asked for twice with the skew, and not at all beside it.
        (
            skewed,
            "1022222005",
            16,
            "Brand#12,SMALL PLATED,3,44,1,39,12,23,29,1",
        ),
        (
            normal,
            "13",
            16,
            "Brand#41,PROMO BRUSHED,44,22,47,34,9,6,2,16",
        ),
    ] {
        assert_eq!(
            parameters(bindings, seed, number),
            known,
            "Q{number}, {bindings}"
        );
    }
}

/// The sum is that of what the reference program writes to its log (`qgen -l`), at scale 1.
#[test]
fn all_parameters_of_many_seeds_are_those_of_the_reference() {
    let seeds = (1..=60).chain((1..=240).map(|turn| turn * 8_888_887_i64));
    for (bindings, sum) in [
        (
            Bindings::Skewed,
            "cf29be42b5a92e0e06e04a9406ad7c1fb267ff047791bb31a3463ae458c58a20",
        ),
        (
            Bindings::Normal,
            "c07a74b7de483fd0b56034eaf539de9ab794885816ce1d326c81bc8ad990d1dc",
        ),
    ] {
        let mut log = String::new();
        for seed in seeds.clone() {
            let binding = binding(bindings, &seed.to_string());
            for number in 1..=22 {
                let parameters = binding.parameters(number).join("\t");
                writeln!(log, "{number}\t{parameters}").expect("text");
            }
        }
        assert_eq!(sha256(log.as_bytes()), sum, "{bindings}");
    }
}

#[test]
fn texts_have_no_place_left_and_parameters_stay_in_their_ranges() {
    let mut missing = HashSet::new();
    for bindings in [Bindings::Skewed, Bindings::Normal] {
        for seed in 1..=200 {
            let binding = binding(bindings, &(seed * 9_999_991).to_string());
            for number in 1..=22 {
                let parameters = binding.parameters(number);
                assert!(!parameters.is_empty());
                match binding.query(number) {
                    Ok(query) => {
                        assert!(!query.sql.contains(':'), "{}", query.sql);
                        for parameter in &parameters {
                            assert!(
                                query.sql.contains(parameter.as_str()),
                                "{parameter}: {}",
                                query.sql
                            );
                        }
                    }
                    Err(error) => {
                        let error = error.to_string();
                        assert!(error.contains("query 3 the date 1993-05-32"), "{error}");
                        missing.insert((bindings.name(), number));
                    }
                }
            }
        }
    }
    assert_eq!(missing, [("skewed", 3)].into());
}

#[test]
fn normal_parameters_avoid_what_is_skewed() {
    for seed in 1..100 {
        let binding = binding(Bindings::Normal, &seed.to_string());
        let joined = |number| binding.parameters(number).join(",");
        assert!(!binding.parameters(16).contains(&"1".to_string()));
        assert!(
            joined(13).contains("mine") && joined(13).contains("gold"),
            "{}",
            joined(13)
        );
        let [supplier, customer] = [0, 1].map(|index| binding.parameters(7)[index].clone());
        assert_ne!(supplier, customer);
        for number in [3, 4, 5, 6, 10, 12, 14, 15, 20] {
            assert!(joined(number).contains("199"), "{}", joined(number));
            assert!(
                !["1992", "1993", "1994", "1998"]
                    .iter()
                    .any(|year| joined(number).contains(year))
            );
        }
        assert!(["312,50", "313,50", "314,50", "315,50"].contains(&joined(18).as_str()));
    }
}

#[test]
fn the_fraction_follows_the_scale() {
    for (scale, fraction) in [
        (0.01, "0.0100000000"),
        (30.0, "0.0000033333"),
        (50.0, "0.0000020000"),
    ] {
        let binding = Binding {
            scale: Scale::new(scale).expect("a scale"),
            ..binding(Bindings::Skewed, "1648967542")
        };
        assert_eq!(binding.parameters(11)[1], fraction);
    }
}

#[test]
fn what_is_no_seed_or_kind_is_refused() {
    for seed in ["0", "-1", "2147483647", "x", ""] {
        let error = seed.parse::<Seed>().expect_err(seed).to_string();
        assert!(error.contains("from 1 to 2147483646"), "{error}");
    }
    let error = "Skew".parse::<Bindings>().expect_err("a name").to_string();
    assert!(error.contains("skewed or normal"), "{error}");
}
