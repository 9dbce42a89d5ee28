//! Client quotas, ACLs, SCRAM credentials and delegation tokens: kept as the records that created them,
//! so that a snapshot writes them again byte for byte.
//!
//! In Kafka: `ClientQuotasImage`, `AclsImage`, `ScramImage`, `DelegationTokenImage`.

use std::collections::BTreeSet;

use bytestring::ByteString;
use ottla_protocol::metadata_records::{
    AccessControlEntryRecord, ClientQuotaRecord, DelegationTokenRecord, MetadataRecord,
    RemoveAccessControlEntryRecord, RemoveDelegationTokenRecord, RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
};
use ottla_security::Acl;
use ottla_types::Uuid;
use rpds::RedBlackTreeMapSync;

use crate::{MetadataVersion, ReplayError};

/// The parts of a quota's entity (`user`, `client-id`, `ip`) with their names, sorted by part; `None`
/// names the default.
pub type QuotaEntity = Vec<(ByteString, Option<ByteString>)>;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClientQuotasImage {
    quotas: RedBlackTreeMapSync<(QuotaEntity, ByteString), ClientQuotaRecord>,
}

impl ClientQuotasImage {
    pub fn is_empty(&self) -> bool {
        self.quotas.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ClientQuotaRecord> {
        self.quotas.values()
    }

    /// All quotas with their entities. Quotas of one entity are adjacent.
    pub fn by_entity(&self) -> impl Iterator<Item = (&QuotaEntity, &ClientQuotaRecord)> {
        self.quotas
            .iter()
            .map(|((entity, _), record)| (entity, record))
    }

    /// The quota with this name for exactly this entity, whose parts are sorted.
    pub fn value(&self, entity: &QuotaEntity, key: &ByteString) -> Option<f64> {
        let record = self.quotas.get(&(entity.clone(), key.clone()));
        record.map(|record| record.value)
    }

    pub(crate) fn change(&mut self, record: &ClientQuotaRecord) {
        let mut entity: QuotaEntity = record
            .entity
            .iter()
            .map(|part| (part.entity_type.clone(), part.entity_name.clone()))
            .collect();
        entity.sort();
        let key = (entity, record.key.clone());
        if record.remove {
            self.quotas.remove_mut(&key);
        } else {
            self.quotas.insert_mut(key, record.clone());
        }
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct AclsImage {
    acls: RedBlackTreeMapSync<Uuid, AccessControlEntryRecord>,
    /// The ACLs without their ids, with the number of ids of each. Used to find out whether an ACL
    /// exists already.
    existing: RedBlackTreeMapSync<Acl, usize>,
}

impl AclsImage {
    pub fn is_empty(&self) -> bool {
        self.acls.is_empty()
    }

    pub fn len(&self) -> usize {
        self.acls.size()
    }

    pub fn iter(&self) -> impl Iterator<Item = &AccessControlEntryRecord> {
        self.acls.values()
    }

    /// Each with its id.
    pub fn acls(&self) -> impl Iterator<Item = (Uuid, Acl)> {
        self.acls
            .iter()
            .map(|(id, record)| (*id, Acl::from_record(record)))
    }

    pub fn get(&self, id: Uuid) -> Option<Acl> {
        self.acls.get(&id).map(Acl::from_record)
    }

    pub fn contains(&self, acl: &Acl) -> bool {
        self.existing.contains_key(acl)
    }

    /// The ids of the ACLs that are in only one of the two images.
    pub(crate) fn changes_to(&self, after: &AclsImage) -> BTreeSet<Uuid> {
        let (before, after) = (&self.acls, &after.acls);
        let gone_or_changed = before
            .iter()
            .filter(|(id, record)| after.get(*id) != Some(record));
        let added = after.iter().filter(|(id, _)| !before.contains_key(*id));
        gone_or_changed.chain(added).map(|(id, _)| *id).collect()
    }

    pub(crate) fn insert(&mut self, record: &AccessControlEntryRecord) {
        if let Some(replaced) = self.get(record.id) {
            self.forget(&replaced);
        }
        let acl = Acl::from_record(record);
        let times = self.existing.get(&acl).copied().unwrap_or(0);
        self.existing.insert_mut(acl, times + 1);
        self.acls.insert_mut(record.id, record.clone());
    }

    pub(crate) fn remove(
        &mut self,
        record: &RemoveAccessControlEntryRecord,
    ) -> Result<(), ReplayError> {
        let removed = self
            .get(record.id)
            .ok_or(ReplayError::UnknownAcl(record.id))?;
        self.forget(&removed);
        self.acls.remove_mut(&record.id);
        Ok(())
    }

    /// Removes one id of this ACL.
    fn forget(&mut self, acl: &Acl) {
        match self.existing.get(acl).copied() {
            Some(times @ 2..) => self.existing.insert_mut(acl.clone(), times - 1),
            _ => {
                self.existing.remove_mut(acl);
            }
        }
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct ScramImage {
    /// By mechanism (1 SCRAM-SHA-256, 2 SCRAM-SHA-512) and user.
    credentials: RedBlackTreeMapSync<(i8, ByteString), UserScramCredentialRecord>,
}

impl ScramImage {
    pub fn is_empty(&self) -> bool {
        self.credentials.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &UserScramCredentialRecord> {
        self.credentials.values()
    }

    /// The credentials of one mechanism, without a look at the others.
    pub fn of_mechanism(&self, mechanism: i8) -> impl Iterator<Item = &UserScramCredentialRecord> {
        let from = (mechanism, ByteString::new());
        let credentials = self.credentials.range(from..).map(|(_, record)| record);
        credentials.take_while(move |record| record.mechanism == mechanism)
    }

    pub fn get(&self, mechanism: i8, user: &ByteString) -> Option<&UserScramCredentialRecord> {
        self.credentials.get(&(mechanism, user.clone()))
    }

    /// Applies a record, if it is about a SCRAM credential.
    pub fn apply(&mut self, record: &MetadataRecord) {
        match record {
            MetadataRecord::UserScramCredential(record) => self.insert(record),
            MetadataRecord::RemoveUserScramCredential(record) => self.remove(record),
            _ => {}
        }
    }

    pub(crate) fn insert(&mut self, record: &UserScramCredentialRecord) {
        self.credentials
            .insert_mut((record.mechanism, record.name.clone()), record.clone());
    }

    pub(crate) fn remove(&mut self, record: &RemoveUserScramCredentialRecord) {
        self.credentials
            .remove_mut(&(record.mechanism, record.name.clone()));
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct DelegationTokensImage {
    tokens: RedBlackTreeMapSync<ByteString, DelegationTokenRecord>,
}

impl DelegationTokensImage {
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &DelegationTokenRecord> {
        self.tokens.values()
    }

    pub fn get(&self, token_id: &str) -> Option<&DelegationTokenRecord> {
        self.tokens.get(token_id)
    }

    pub(crate) fn insert(&mut self, record: &DelegationTokenRecord) {
        self.tokens
            .insert_mut(record.token_id.clone(), record.clone());
    }

    pub(crate) fn remove(&mut self, record: &RemoveDelegationTokenRecord) {
        self.tokens.remove_mut(&record.token_id);
    }
}

/// Records that are stored without being interpreted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KeptRecords {
    pub acls: AclsImage,
    pub scram: ScramImage,
    pub delegation_tokens: DelegationTokensImage,
}

impl KeptRecords {
    pub(crate) fn write(
        &self,
        metadata_version: MetadataVersion,
        records: &mut Vec<MetadataRecord>,
    ) {
        let acls = self.acls.iter().cloned();
        records.extend(acls.map(MetadataRecord::AccessControlEntry));
        if metadata_version.is_scram_supported() {
            let credentials = self.scram.iter().cloned();
            records.extend(credentials.map(MetadataRecord::UserScramCredential));
        }
        if metadata_version.is_delegation_token_supported() {
            let tokens = self.delegation_tokens.iter().cloned();
            records.extend(tokens.map(MetadataRecord::DelegationToken));
        }
    }
}
