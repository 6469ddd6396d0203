"""WebSocket that takes text while it is written and answers with sound."""
