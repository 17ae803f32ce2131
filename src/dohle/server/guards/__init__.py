"""What stands before every API when there is an authorizer: nobody does what they may not."""
