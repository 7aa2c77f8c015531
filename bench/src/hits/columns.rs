//! The columns of `hits`: their names and types in order, and what their values are like.

use datafusion::arrow::datatypes::{DataType, Field, Schema};

/// What the values of a column are like. Values of one user, or one page, are the same in all of their rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// A number of the row's own.
    Unique,
    /// The user.
    User,
    /// Seconds since 1970, so many of which are added at random.
    Seconds(u32),
    /// Days since 1970.
    Day,
    /// 0 in nearly all rows: 1 in so many of a thousand.
    Flag(u32),
    /// 0 up to a number, small ones more often.
    Small(u32),
    /// The same, the same for all rows of a user.
    OfUser(u32),
    /// So many different numbers, some of which are frequent.
    Number(u32),
    /// The same, the same for all rows of a page.
    OfPage(u32),
    /// Milliseconds that something took; of many rows unknown, which is 0.
    Milliseconds,
    /// A number made of the page's address, or of that of the page before.
    Hash(Page),
    /// The address of a page.
    Address(Page),
    /// The title of the page.
    Title,
    /// What was searched for, in so many of a thousand rows.
    Phrase(u32),
    /// One of so many short words in so many of a thousand rows, else nothing.
    Word { of: u32, in_thousand: u32 },
}

/// Which page of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// The one that was seen.
    Seen,
    /// The one that led there; many rows have none.
    Before,
}

/// How a number is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    I16,
    U16,
    I32,
    I64,
    Text,
}

use Kind::{
    Address, Day, Flag, Hash, Milliseconds, Number, OfPage, OfUser, Phrase, Seconds, Small, Title,
    Unique, User, Word,
};
use Width::{I16, I32, I64, Text, U16};

const fn word(of: u32, in_thousand: u32) -> Kind {
    Word { of, in_thousand }
}

/// Names, types and values, in the order of the published table.
pub(super) const COLUMNS: [(&str, Width, Kind); 105] = [
    ("WatchID", I64, Unique),
    ("JavaEnable", I16, OfUser(2)),
    ("Title", Text, Title),
    ("GoodEvent", I16, Flag(1000)),
    ("EventTime", I64, Seconds(0)),
    ("EventDate", U16, Day),
    ("CounterID", I32, OfPage(6500)),
    ("ClientIP", I32, Number(9_900_000)),
    ("RegionID", I32, OfUser(9000)),
    ("UserID", I64, User),
    ("CounterClass", I16, Small(2)),
    ("OS", I16, OfUser(90)),
    ("UserAgent", I16, OfUser(80)),
    ("URL", Text, Address(Page::Seen)),
    ("Referer", Text, Address(Page::Before)),
    ("IsRefresh", I16, Flag(130)),
    ("RefererCategoryID", I16, Small(400)),
    ("RefererRegionID", I32, Small(3000)),
    ("URLCategoryID", I16, OfPage(400)),
    ("URLRegionID", I32, OfPage(3000)),
    ("ResolutionWidth", I16, OfUser(2500)),
    ("ResolutionHeight", I16, OfUser(1600)),
    ("ResolutionDepth", I16, OfUser(33)),
    ("FlashMajor", I16, OfUser(15)),
    ("FlashMinor", I16, OfUser(9)),
    ("FlashMinor2", Text, word(400, 700)),
    ("NetMajor", I16, OfUser(4)),
    ("NetMinor", I16, OfUser(6)),
    ("UserAgentMajor", I16, OfUser(50)),
    ("UserAgentMinor", Text, word(400, 900)),
    ("CookieEnable", I16, Flag(990)),
    ("JavascriptEnable", I16, Flag(950)),
    ("IsMobile", I16, OfUser(2)),
    ("MobilePhone", I16, Small(80)),
    ("MobilePhoneModel", Text, word(160, 55)),
    ("Params", Text, word(300_000, 20)),
    ("IPNetworkID", I32, Number(1_500_000)),
    ("TraficSourceID", I16, Small(11)),
    ("SearchEngineID", I16, Small(90)),
    ("SearchPhrase", Text, Phrase(130)),
    ("AdvEngineID", I16, Small(20)),
    ("IsArtifical", I16, Flag(20)),
    ("WindowClientWidth", I16, OfUser(2500)),
    ("WindowClientHeight", I16, OfUser(1600)),
    ("ClientTimeZone", I16, OfUser(60)),
    ("ClientEventTime", I64, Seconds(7200)),
    ("SilverlightVersion1", I16, OfUser(6)),
    ("SilverlightVersion2", I16, OfUser(2)),
    ("SilverlightVersion3", I32, OfUser(100)),
    ("SilverlightVersion4", I16, Flag(1)),
    ("PageCharset", Text, word(25, 980)),
    ("CodeVersion", I32, Small(900)),
    ("IsLink", I16, Flag(15)),
    ("IsDownload", I16, Flag(3)),
    ("IsNotBounce", I16, Flag(30)),
    ("FUniqID", I64, User),
    ("OriginalURL", Text, word(10_000_000, 150)),
    ("HID", I32, Number(2_000_000_000)),
    ("IsOldCounter", I16, Flag(1)),
    ("IsEvent", I16, Flag(1)),
    ("IsParameter", I16, Flag(10)),
    ("DontCountHits", I16, Flag(80)),
    ("WithHash", I16, Flag(15)),
    ("HitColor", Text, word(5, 1000)),
    ("LocalEventTime", I64, Seconds(3600)),
    ("Age", I16, OfUser(60)),
    ("Sex", I16, OfUser(3)),
    ("Income", I16, OfUser(5)),
    ("Interests", I16, OfUser(15_000)),
    ("Robotness", I16, Small(20)),
    ("RemoteIP", I32, Number(9_900_000)),
    ("WindowName", I32, Number(60_000)),
    ("OpenerName", I32, Number(60_000)),
    ("HistoryLength", I16, Small(300)),
    ("BrowserLanguage", Text, word(60, 990)),
    ("BrowserCountry", Text, word(200, 990)),
    ("SocialNetwork", Text, word(10, 2)),
    ("SocialAction", Text, word(6, 2)),
    ("HTTPError", I16, Flag(1)),
    ("SendTiming", I32, Milliseconds),
    ("DNSTiming", I32, Milliseconds),
    ("ConnectTiming", I32, Milliseconds),
    ("ResponseStartTiming", I32, Milliseconds),
    ("ResponseEndTiming", I32, Milliseconds),
    ("FetchTiming", I32, Milliseconds),
    ("SocialSourceNetworkID", I16, Small(12)),
    ("SocialSourcePage", Text, word(2000, 3)),
    ("ParamPrice", I64, Flag(2)),
    ("ParamOrderID", Text, word(100_000, 2)),
    ("ParamCurrency", Text, word(5, 60)),
    ("ParamCurrencyID", I16, Small(4)),
    ("OpenstatServiceName", Text, word(20, 10)),
    ("OpenstatCampaignID", Text, word(10_000, 10)),
    ("OpenstatAdID", Text, word(20_000, 10)),
    ("OpenstatSourceID", Text, word(4000, 10)),
    ("UTMSource", Text, word(2000, 25)),
    ("UTMMedium", Text, word(200, 25)),
    ("UTMCampaign", Text, word(10_000, 25)),
    ("UTMContent", Text, word(20_000, 15)),
    ("UTMTerm", Text, word(40_000, 15)),
    ("FromTag", Text, word(6000, 20)),
    ("HasGCLID", I16, Flag(10)),
    ("RefererHash", I64, Hash(Page::Before)),
    ("URLHash", I64, Hash(Page::Seen)),
    ("CLID", I32, Small(2000)),
];

/// The schema of the table; nothing is NULL.
pub(super) fn schema() -> Schema {
    let fields = COLUMNS.iter().map(|(name, width, _)| {
        let data_type = match width {
            I16 => DataType::Int16,
            U16 => DataType::UInt16,
            I32 => DataType::Int32,
            I64 => DataType::Int64,
            Text => DataType::Utf8,
        };
        Field::new(*name, data_type, false)
    });
    Schema::new(fields.collect::<Vec<_>>())
}
