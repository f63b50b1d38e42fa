"""A patch as mail: headers, message, mailboxes."""
