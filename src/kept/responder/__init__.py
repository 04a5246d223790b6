"""From a message that was accepted to a reply that was delivered. Knows no transport."""
