# What a drafter may draft, and what it says about a draft. llamad/engine/drafts/spec_types.py has the rules for each of
# llama-server's types.
from libc.stdint cimport int32_t

ctypedef struct DraftRules:
    int32_t n_match_min      # tokens at the text's end that must occur earlier, too; fewer than 2 count as 2
    int32_t n_draft_min      # a shorter draft is dropped
    int32_t n_draft_max
    int32_t n_per_match      # a draft is at most this many times as long as the match; 0: no such limit
    int32_t n_places_min     # places with the longest match; with fewer there is no draft
    int32_t n_places_max     # the most recent places that vote, at most PLACES_MAX
    int32_t percent_min      # share of the places that must agree with the draft up to and including a token

ctypedef struct Drafted:
    int32_t n                # tokens drafted
    int32_t n_match          # length of the match, as far as it was measured; 0: there was none
    int32_t n_places         # places that had a match of this length and voted
