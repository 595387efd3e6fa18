use super::*;

fn start(log: &Arc<Log>, body: &'static str) -> InFlight {
    log.start(Protocol::Chat, HeaderMap::new(), &Bytes::from_static(body.as_bytes()))
}

#[test]
fn starts_and_ends_have_one_order() {
    let log = Arc::new(Log::new(10, 1000));
    let mut one = start(&log, "1");
    let two = start(&log, "2");
    one.end(200, None);
    let mut three = start(&log, "3");
    drop(two);
    three.end(500, None);
    let seen = log.requests();
    let order: Vec<_> = seen.iter().map(|r| (r.start_n, r.end_n, r.client_gone)).collect();
    assert_eq!(order, [(1, Some(3), false), (2, Some(5), true), (4, Some(6), false)]);
    assert!(seen[0].overlaps(&seen[1]) && seen[2].overlaps(&seen[1]) && !seen[0].overlaps(&seen[2]));
    assert_eq!((most_at_once(&seen), most_at_once(&[])), (2, 0));
}

#[test]
fn the_record_is_bounded_and_keeps_the_newest() {
    let log = Arc::new(Log::new(3, 8));
    let mut first = start(&log, "aa");
    let _rest: Vec<_> = (0..4).map(|_| start(&log, "bbb")).collect();
    first.end(200, None);
    assert_eq!(log.requests().iter().map(|r| r.seq).collect::<Vec<_>>(), [4, 5]);
    let _big = start(&log, "more than eight bytes");
    assert_eq!(log.requests().len(), 1);
    log.clear();
    assert_eq!(log.requests().len(), 0);
}
