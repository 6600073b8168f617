//! The memory of a fake GPU, and who touched it when.

use std::collections::BTreeMap;

/// How far each actor was when something happened: entry 0 is the host's, the others are streams'.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    /// One step of an actor; the moment of that step.
    pub(super) fn step(&mut self, actor: usize) -> Moment {
        if self.0.len() <= actor {
            self.0.resize(actor + 1, 0);
        }
        self.0[actor] += 1;
        Moment { actor, time: self.0[actor] }
    }

    /// From here on, everything that came before the other clock came before this one.
    pub(super) fn follow(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own = (*own).max(*other));
    }

    fn comes_after(&self, moment: Moment) -> bool {
        self.0.get(moment.actor).is_some_and(|time| *time >= moment.time)
    }
}

/// A step of an actor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    actor: usize,
    time: u64,
}

/// Who touched a piece of memory last.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    write: Option<(Moment, String)>,
    reads: Vec<(Moment, String)>,
}

impl Accesses {
    /// Notes an access, and says what it is not ordered after.
    pub(super) fn note(&mut self, clock: &Clock, moment: Moment, who: &str, writes: bool) -> Option<String> {
        let earlier = if writes { &self.reads[..] } else { &[] };
        let unordered = self.write.iter().chain(earlier).find(|(moment, _)| !clock.comes_after(*moment));
        let race = unordered.map(|(_, other)| {
            let does = if writes { "writes" } else { "reads" };
            format!("{who} {does} it, which is not ordered after {other}")
        });
        let entry = (moment, who.to_owned());
        if writes {
            self.reads.clear();
            self.write = Some(entry);
        } else {
            self.reads.retain(|(earlier, _)| earlier.actor != moment.actor);
            self.reads.push(entry);
        }
        race
    }
}

/// The bytes of a fake GPU.
#[derive(Debug, Default)]
pub struct FakeMemory {
    blocks: BTreeMap<u64, FakeBlock>,
    next: u64,
}

#[derive(Debug)]
struct FakeBlock {
    bytes: Vec<u8>,
    accesses: Accesses,
}

impl FakeMemory {
    /// The bytes at an address.
    ///
    /// # Panics
    /// If they do not lie in one piece of memory: what is enqueued is checked when it is enqueued.
    pub fn bytes(&self, address: u64, len: usize) -> &[u8] {
        let (begin, block) = self.block(address, len).expect("it was checked when it was enqueued");
        &block.bytes[(address - begin) as usize..][..len]
    }

    /// The bytes at an address, to be changed.
    ///
    /// # Panics
    /// As [`bytes`](Self::bytes).
    pub fn bytes_mut(&mut self, address: u64, len: usize) -> &mut [u8] {
        let (begin, _) = self.block(address, len).expect("it was checked when it was enqueued");
        let block = self.blocks.get_mut(&begin).expect("it was found above");
        &mut block.bytes[(address - begin) as usize..][..len]
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn used(&self) -> u64 {
        self.blocks.values().map(|block| block.bytes.len() as u64).sum()
    }

    /// New memory; an address is never given out twice, so that use after free is seen.
    pub(super) fn allocate(&mut self, bytes: usize) -> u64 {
        let address = 0x7000_0000_0000 + self.next;
        self.next += (bytes as u64).next_multiple_of(256) + 256;
        self.blocks.insert(address, FakeBlock { bytes: vec![0xA5; bytes], accesses: Accesses::default() });
        address
    }

    /// Gives memory back; false if there is none of this address.
    pub(super) fn free(&mut self, address: u64) -> bool {
        self.blocks.remove(&address).is_some()
    }

    /// Who touched the piece that holds these bytes; none if no piece does.
    pub(super) fn accesses(&mut self, address: u64, len: usize) -> Option<&mut Accesses> {
        let (begin, _) = self.block(address, len)?;
        self.blocks.get_mut(&begin).map(|block| &mut block.accesses)
    }

    fn block(&self, address: u64, len: usize) -> Option<(u64, &FakeBlock)> {
        let (begin, block) = self.blocks.range(..=address).next_back()?;
        let inside = (address - begin) as usize;
        (inside.checked_add(len)? <= block.bytes.len()).then_some((*begin, block))
    }
}
