package problem

// Status is the HTTP status (RFC 9110) of an answer that says c: the same on
// pages and at the API. A code that is not named here is a refusal of something
// well formed, 422. This package may not import net/http: the verifier uses it.
func (c Code) Status() int {
	switch c {
	case Internal:
		return 500
	case Usage:
		return 400
	case Unauthenticated:
		return 401
	case OriginNotListed, LoginLinkInvalid, Forbidden, LoginAgain, LoginRefused, SelfApproval, PersonUnknown:
		return 403
	case NotFound:
		return 404
	case Conflict:
		return 409
	case CandidateChanged, NeighbourChanged:
		return 412
	case HostNotListed:
		return 421
	case RateLimited:
		return 429
	case Unavailable, Unreachable:
		return 503
	}
	return 422
}
