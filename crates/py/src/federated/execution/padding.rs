//! Which clients run together, where they have different numbers of rows.

use std::collections::BTreeMap;

/// How many clients with as many rows are enough to run by themselves.
const MANY: usize = 32;

/// Clients that run together.
pub struct Together {
    clients: Vec<usize>,
    /// How many rows each has, where they differ: for each input that has rows.
    lengths: Option<Vec<Vec<usize>>>,
}

impl Together {
    /// Clients whose tensors have the same sizes.
    pub fn equal(clients: Vec<usize>) -> Self {
        Self { clients, lengths: None }
    }

    /// The clients, by their numbers.
    pub fn clients(&self) -> &[usize] {
        &self.clients
    }

    /// For each input that has rows, how many each of them has; `None`: as many as the others.
    pub fn lengths(&self) -> Option<Vec<Vec<usize>>> {
        let lengths = self.lengths.as_ref()?;
        let inputs = lengths.first().map_or(0, Vec::len);
        Some((0..inputs).map(|input| lengths.iter().map(|of| of[input]).collect()).collect())
    }

    /// Whether they have different numbers of rows.
    pub fn is_padded(&self) -> bool {
        self.lengths.is_some()
    }

    /// How many rows the client has that has most of them.
    pub fn most_rows(&self) -> usize {
        self.lengths.iter().flatten().flatten().copied().max().unwrap_or(0)
    }

    /// One whose tensors are about as large as any.
    pub fn largest(&self) -> usize {
        let lengths = self.lengths.iter().flatten();
        let rows = |of: &[usize]| of.iter().sum::<usize>();
        let at = lengths.enumerate().max_by_key(|(_, of)| rows(of)).map_or(0, |(at, _)| at);
        self.clients[at]
    }

    /// So many of them at a time.
    pub fn chunks(&self, most: usize) -> impl Iterator<Item = Self> {
        self.clients.chunks(most).enumerate().map(move |(at, clients)| {
            let lengths = self.lengths.as_ref().map(|of| &of[at * most..][..clients.len()]);
            let is_padded = lengths.is_some_and(|of| of.iter().any(|length| *length != of[0]));
            let lengths = lengths.filter(|_| is_padded).map(<[Vec<usize>]>::to_vec);
            Self { clients: clients.to_vec(), lengths }
        })
    }

    /// Those with as many rows together.
    pub fn apart(&self) -> Vec<Self> {
        self.by_lengths().into_values().map(Self::equal).collect()
    }

    /// Those with about as many rows together; `None`: they are already.
    pub fn finer(&self, few: usize) -> Option<Vec<Self>> {
        let groups = self.by_lengths().into_iter();
        let found =
            together(groups.map(|(of, clients)| (Some(of.to_vec()), clients)).collect(), few);
        (found.len() > 1).then_some(found)
    }

    fn by_lengths(&self) -> BTreeMap<&[usize], Vec<usize>> {
        let mut groups: BTreeMap<&[usize], Vec<usize>> = BTreeMap::new();
        for (&client, length) in self.clients.iter().zip(self.lengths.iter().flatten()) {
            groups.entry(length).or_default().push(client);
        }
        groups
    }
}

/// Groups of clients with as many rows, put together where they are small: with numbers of rows that are less than
/// twice as large as any's, or up to a few. A group whose numbers aren't known stays one.
pub fn together(groups: Vec<(Option<Vec<usize>>, Vec<usize>)>, few: usize) -> Vec<Together> {
    let mut found = Vec::new();
    let mut small: BTreeMap<Vec<usize>, Vec<(usize, Vec<usize>)>> = BTreeMap::new();
    for (lengths, clients) in groups {
        match lengths {
            Some(lengths) if !lengths.contains(&0) && clients.len() < MANY => {
                let about =
                    lengths.iter().map(|length| length.next_power_of_two().max(few)).collect();
                let clients = clients.into_iter().map(|client| (client, lengths.clone()));
                small.entry(about).or_default().extend(clients);
            }
            _ => found.push(Together::equal(clients)),
        }
    }
    for some in small.into_values() {
        let (clients, lengths): (Vec<_>, Vec<_>) = some.into_iter().unzip();
        let is_padded = lengths.iter().any(|length| *length != lengths[0]);
        found.push(Together { clients, lengths: is_padded.then_some(lengths) });
    }
    found
}
