//! Arithmetic before a measurement: the load of services, and the number and price of the brokers
//! for it.

use std::fmt;

use crate::scenario::quantities::{shown_bytes, shown_count};

/// The write load of services.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    pub services: f64,
    /// Bytes that one service writes in a day.
    pub daily_bytes: f64,
    /// Hours per day in which it writes.
    pub hours: f64,
    pub record_bytes: f64,
}

/// The result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sizing {
    pub demand: Demand,
    /// Of one service, during its hours.
    pub service_bytes_per_second: f64,
    pub service_records_per_second: f64,
    /// Of all services.
    pub bytes_per_second: f64,
    pub records_per_second: f64,
    pub daily_bytes: f64,
    pub daily_records: f64,
}

impl Demand {
    /// `None` if a number is not positive.
    pub fn size(self) -> Option<Sizing> {
        let all = [
            self.services,
            self.daily_bytes,
            self.hours,
            self.record_bytes,
        ];
        if all
            .iter()
            .any(|number| !number.is_finite() || *number <= 0.0)
            || self.hours > 24.0
        {
            return None;
        }
        let service_bytes_per_second = self.daily_bytes / (self.hours * 3600.0);
        let service_records_per_second = service_bytes_per_second / self.record_bytes;
        Some(Sizing {
            demand: self,
            service_bytes_per_second,
            service_records_per_second,
            bytes_per_second: service_bytes_per_second * self.services,
            records_per_second: service_records_per_second * self.services,
            daily_bytes: self.daily_bytes * self.services,
            daily_records: self.daily_bytes / self.record_bytes * self.services,
        })
    }
}

impl fmt::Display for Sizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let demand = &self.demand;
        writeln!(
            f,
            "One service: {} in {} hours are {}/s, {:.1} records of {} bytes a second.",
            shown_bytes(demand.daily_bytes),
            demand.hours,
            shown_bytes(self.service_bytes_per_second),
            self.service_records_per_second,
            demand.record_bytes,
        )?;
        write!(
            f,
            "{} services: {} and {} records a day; {}/s, {} records a second.",
            shown_count(demand.services),
            shown_bytes(self.daily_bytes),
            shown_count(self.daily_records),
            shown_bytes(self.bytes_per_second),
            shown_count(self.records_per_second),
        )
    }
}

/// The number of brokers for a load, from the measured capacity of a cluster.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fleet {
    pub brokers: u64,
    /// In the currency of the price.
    pub yearly_cost: f64,
}

/// A year has 365 days, as in the published comparison.
const HOURS_A_YEAR: f64 = 24.0 * 365.0;

/// `measured_brokers` sustained `measured` records per second; `headroom` is the fraction to keep
/// free.
pub fn fleet(
    load: f64,
    measured: f64,
    measured_brokers: u64,
    headroom: f64,
    hourly_price: f64,
) -> Option<Fleet> {
    let one = measured / measured_brokers as f64 * (1.0 - headroom);
    if !one.is_finite() || one <= 0.0 || load <= 0.0 {
        return None;
    }
    let brokers = (load / one).ceil().max(1.0) as u64;
    Some(fleet_of(brokers, hourly_price))
}

pub fn fleet_of(brokers: u64, hourly_price: f64) -> Fleet {
    Fleet {
        brokers,
        yearly_cost: brokers as f64 * hourly_price * HOURS_A_YEAR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 GB a day over 16 hours were published as 36 KB/s and 72 records of 512 bytes; for 100
    /// services 200 GB a day and 7,200 records a second (the 72.8 of one service were rounded down
    /// before).
    #[test]
    fn the_published_sizing_is_reproduced() {
        let demand = Demand {
            services: 100.0,
            daily_bytes: 2.0 * 1_073_741_824.0,
            hours: 16.0,
            record_bytes: 512.0,
        };
        let sizing = demand.size().unwrap();
        assert_eq!((sizing.service_bytes_per_second / 1024.0).floor(), 36.0);
        assert_eq!(sizing.service_records_per_second.floor(), 72.0);
        assert_eq!(sizing.daily_bytes / 1_073_741_824.0, 200.0);
        assert_eq!((sizing.records_per_second / 100.0).floor(), 72.0);
        // 4.19 million records a day a service; the published 4.14 million are 72 a second over 16 hours.
        assert_eq!((sizing.daily_records / 100.0).round(), 4_194_304.0);
        assert!(
            sizing.to_string().contains("36.4 KB/s, 72.8 records"),
            "{sizing}"
        );
        assert!(
            Demand {
                hours: 0.0,
                ..demand
            }
            .size()
            .is_none()
        );
        assert!(
            Demand {
                hours: 25.0,
                ..demand
            }
            .size()
            .is_none()
        );
    }

    /// Five brokers against three at 0.904 an hour: 39,595.20 and 23,757.12 a year.
    #[test]
    fn the_published_cost_is_reproduced() {
        let cents = |fleet: Fleet| (fleet.yearly_cost * 100.0).round();
        assert_eq!(cents(fleet_of(5, 0.904)), 3_959_520.0);
        assert_eq!(cents(fleet_of(3, 0.904)), 2_375_712.0);
    }

    #[test]
    fn the_number_of_brokers_follows_from_the_measurement() {
        let found = fleet(170_000.0, 104_000.0, 3, 0.0, 1.0).unwrap();
        assert_eq!(found.brokers, 5);
        assert_eq!(
            fleet(170_000.0, 104_000.0, 3, 0.5, 1.0).unwrap().brokers,
            10
        );
        assert_eq!(fleet(1.0, 0.0, 3, 0.0, 1.0), None);
    }
}
