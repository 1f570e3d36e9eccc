package problem

// Codes of ingest: what a sender is answered, and why an endpoint does not
// start. None says more than the sender may know.
const (
	Unauthorized       Code = "unauthorized"        // 401: no, wrong or foreign signature, or no such endpoint
	MethodNotAllowed   Code = "method_not_allowed"  // 405
	BodyTooLarge       Code = "body_too_large"      // 413
	BodySlow           Code = "body_slow"           // 408
	BodyShort          Code = "body_short"          // 400: the connection ended inside the body
	HeadersTooLarge    Code = "headers_too_large"   // 431
	ContentType        Code = "content_type"        // 415
	ContentEncoding    Code = "content_encoding"    // 415
	BadJSON            Code = "bad_json"            // 400: not JSON, or not one object
	TooDeep            Code = "too_deep"            // 400
	AmbiguousForm      Code = "ambiguous_form"      // 400
	DeliveryIDMissing  Code = "delivery_id_missing" // 400
	Stale              Code = "stale"               // 400: signed time outside the window
	RateLimited        Code = "rate_limited"        // 429
	Draining           Code = "draining"            // 503
	Busy               Code = "busy"                // 503: no memory for the body
	NotDurable         Code = "not_durable"         // 503: nothing was written
	SecretMissing      Code = "secret_missing"      // an endpoint without a secret accepts anything
	SecretTooShort     Code = "secret_too_short"    //
	SecretTooMany      Code = "secret_too_many"     //
	EndpointNameTaken  Code = "endpoint_name_taken" //
	EndpointNameFormat Code = "endpoint_name_format"
)
