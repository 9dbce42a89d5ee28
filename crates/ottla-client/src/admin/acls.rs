//! ACLs.

use ottla_protocol::messages::create_acls_request::AclCreation;
use ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
use ottla_protocol::messages::delete_acls_response::DeleteAclsMatchingAcl;
use ottla_protocol::messages::describe_acls_response::DescribeAclsResource;
use ottla_protocol::messages::{CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest};

use super::Admin;
use crate::error::ClientError;

impl Admin {
    /// The ACLs that match a filter, grouped by resource.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
    ///
    /// // The ACLs of one user: 1 matches any type, pattern, operation and permission.
    /// let filter = DeleteAclsFilter {
    ///     resource_type_filter: 1,
    ///     resource_name_filter: None,
    ///     pattern_type_filter: 1,
    ///     principal_filter: Some("User:alice".into()),
    ///     host_filter: None,
    ///     operation: 1,
    ///     permission_type: 1,
    ///     ..DeleteAclsFilter::default()
    /// };
    /// for resource in admin.describe_acls(&filter).await? {
    ///     println!("{}: {} ACLs", resource.resource_name, resource.acls.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_acls(
        &self,
        filter: &DeleteAclsFilter,
    ) -> Result<Vec<DescribeAclsResource>, ClientError> {
        let request = DescribeAclsRequest {
            resource_type_filter: filter.resource_type_filter,
            resource_name_filter: filter.resource_name_filter.clone(),
            pattern_type_filter: filter.pattern_type_filter,
            principal_filter: filter.principal_filter.clone(),
            host_filter: filter.host_filter.clone(),
            operation: filter.operation,
            permission_type: filter.permission_type,
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let (code, message) = (response.error_code, response.error_message.as_ref());
        ClientError::check("describing ACLs", code, message)?;
        Ok(response.resources)
    }

    /// Creates ACLs. Existing ones are not changed. The error is that of the first refused ACL.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::messages::create_acls_request::AclCreation;
    ///
    /// // Alice may read the topic `orders`. The numbers are Kafka's.
    /// let reads = AclCreation {
    ///     resource_type: 2,
    ///     resource_name: "orders".into(),
    ///     resource_pattern_type: 3,
    ///     principal: "User:alice".into(),
    ///     host: "*".into(),
    ///     operation: 3,
    ///     permission_type: 3,
    ///     ..AclCreation::default()
    /// };
    /// admin.create_acls(&[reads]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_acls(&self, creations: &[AclCreation]) -> Result<(), ClientError> {
        let request = CreateAclsRequest {
            creations: creations.to_vec(),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        response.results.iter().try_for_each(|result| {
            let message = result.error_message.as_ref();
            ClientError::check("creating ACLs", result.error_code, message)
        })
    }

    /// Deletes the ACLs that match any of the filters, and returns them. The error is that of the
    /// first refused filter.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::messages::delete_acls_request::DeleteAclsFilter;
    ///
    /// // All ACLs of the topic `orders`, whoever they are for.
    /// let filter = DeleteAclsFilter {
    ///     resource_type_filter: 2,
    ///     resource_name_filter: Some("orders".into()),
    ///     pattern_type_filter: 3,
    ///     principal_filter: None,
    ///     host_filter: None,
    ///     operation: 1,
    ///     permission_type: 1,
    ///     ..DeleteAclsFilter::default()
    /// };
    /// for acl in admin.delete_acls(&[filter]).await? {
    ///     println!("deleted an ACL of {}", acl.principal);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete_acls(
        &self,
        filters: &[DeleteAclsFilter],
    ) -> Result<Vec<DeleteAclsMatchingAcl>, ClientError> {
        let request = DeleteAclsRequest {
            filters: filters.to_vec(),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let mut deleted = Vec::new();
        for result in response.filter_results {
            let message = result.error_message.as_ref();
            ClientError::check("deleting ACLs", result.error_code, message)?;
            deleted.extend(result.matching_acls);
        }
        Ok(deleted)
    }
}
