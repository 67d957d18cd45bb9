"""What people prefer, as values: pairs of replies to one context, and single replies that are wanted or not."""
