//! Forms (`multipart/form-data`) of files, read in bounded memory.
//!
//! `multer` reads everything that has arrived into its buffer, and looks for a boundary or the end of
//! a head from the beginning of that buffer each time: a preamble that never ends costs memory without
//! limit, and time in the square of its length. So its stream is a gate: it is polled first with the
//! gate closed, for what its buffer has, and then gets one piece at a time. A head, with the preamble
//! or padding before it, gets at most [`HEAD_BYTES_MAX`].

use crate::foundation::error::ApiError;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::Stream;
use multer::{Constraints, Field, Multipart};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

/// How long an upload may stall.
const STILL: Duration = Duration::from_secs(60);
/// The most bytes before the content of a field: the preamble or padding, the boundary and the head,
/// whose file name may be a path of 4 KiB with three bytes for each.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The most bytes that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// The most fields of a form.
const FIELDS_MAX: usize = 20_000;

/// The fields of a form, one after the other.
pub(crate) struct Form {
    fields: Multipart<'static>,
    gate: Arc<Mutex<Gate>>,
    count: usize,
}

/// A field, whose content is to be read to its end before the next field.
pub(crate) struct FormField {
    field: Field<'static>,
    gate: Arc<Mutex<Gate>>,
}

/// What may pass from the body to the parser.
#[derive(Debug, Default)]
struct Gate {
    /// The next piece may pass, which closes the gate.
    open: bool,
    /// How much may still pass before the content of a field begins; `None` within a content.
    head_left: Option<usize>,
}

fn lock(gate: &Mutex<Gate>) -> MutexGuard<'_, Gate> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body behind the gate.
struct GatedBody {
    body: BodyDataStream,
    /// What the body has sent and did not pass yet.
    rest: Bytes,
    gate: Arc<Mutex<Gate>>,
}

impl Stream for GatedBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // A task that finds the gate closed polls once more with an open one.
        if !lock(&self.gate).open {
            return Poll::Pending;
        }
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_next(cx)) {
                Some(Ok(data)) => self.rest = data,
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                None => return Poll::Ready(None),
            }
        }
        let gate = Arc::clone(&self.gate);
        let mut gate = lock(&gate);
        gate.open = false;
        let most = gate.head_left.unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        if most == 0 {
            let message = format!("more than {HEAD_BYTES_MAX} bytes before the content of a field");
            return Poll::Ready(Some(Err(io::Error::other(message))));
        }
        let count = self.rest.len().min(most);
        gate.head_left = gate.head_left.map(|left| left - count);
        Poll::Ready(Some(Ok(self.rest.split_to(count))))
    }
}

/// Polls the parser until it has a result, with as few pieces of the body as it needs.
async fn gated<R>(gate: &Mutex<Gate>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
    poll_fn(|cx| {
        loop {
            lock(gate).open = false;
            if let Poll::Ready(result) = poll(cx) {
                return Poll::Ready(result);
            }
            lock(gate).open = true;
            if let Poll::Ready(result) = poll(cx) {
                return Poll::Ready(result);
            }
            // Still open: the body has nothing now, and wakes the task when it has.
            if lock(gate).open {
                return Poll::Pending;
            }
        }
    })
    .await
}

impl Form {
    /// The form in a body.
    ///
    /// # Errors
    /// 400 without a boundary.
    pub(crate) fn new(
        headers: &HeaderMap,
        body: Body,
        constraints: Constraints,
    ) -> Result<Self, ApiError> {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let boundary = multer::parse_boundary(kind.unwrap_or_default());
        let boundary = boundary.map_err(|error| malformed(&error))?;
        let gate = Arc::<Mutex<Gate>>::default();
        let body = GatedBody {
            body: body.into_data_stream(),
            rest: Bytes::new(),
            gate: Arc::clone(&gate),
        };
        let fields = Multipart::with_constraints(body, boundary, constraints);
        Ok(Self { fields, gate, count: 0 })
    }

    /// The next field; `None` after the last.
    ///
    /// # Errors
    /// 400 for a malformed form, a head that is too long or too many fields; 408 when the upload
    /// stalls.
    pub(crate) async fn next(&mut self) -> Result<Option<FormField>, ApiError> {
        if self.count == FIELDS_MAX {
            let message = format!("the form has more than {FIELDS_MAX} fields");
            return Err(ApiError::bad_request(message));
        }
        self.count += 1;
        lock(&self.gate).head_left = Some(HEAD_BYTES_MAX);
        let fields = &mut self.fields;
        let next = gated(&self.gate, |cx| fields.poll_next_field(cx));
        let field = timeout(STILL, next).await.map_err(|_| stalled())?;
        lock(&self.gate).head_left = None;
        let field = field.map_err(|error| malformed(&error))?;
        Ok(field.map(|field| FormField { field, gate: Arc::clone(&self.gate) }))
    }
}

impl FormField {
    pub(crate) fn name(&self) -> Option<&str> {
        self.field.name()
    }

    pub(crate) fn file_name(&self) -> Option<&str> {
        self.field.file_name()
    }

    /// The next bytes of the content; `None` at its end.
    ///
    /// # Errors
    /// See [`Form::next`].
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ApiError> {
        let field = &mut self.field;
        let next = gated(&self.gate, |cx| Pin::new(&mut *field).poll_next(cx));
        let chunk = timeout(STILL, next).await.map_err(|_| stalled())?;
        chunk.transpose().map_err(|error| malformed(&error))
    }

    /// Reads the content without using it.
    ///
    /// # Errors
    /// See [`Form::next`].
    pub(crate) async fn skip(mut self) -> Result<(), ApiError> {
        while self.chunk().await?.is_some() {}
        Ok(())
    }

    /// The content as text, of at most `max` bytes.
    ///
    /// # Errors
    /// See [`Form::next`]; 400 for a longer content, and for one that is not UTF-8.
    pub(crate) async fn text(mut self, max: usize) -> Result<String, ApiError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if all.len() + bytes.len() > max {
                let message = format!("the form is malformed: a field has more than {max} bytes");
                return Err(ApiError::bad_request(message));
            }
            all.extend_from_slice(&bytes);
        }
        let text = String::from_utf8(all);
        text.map_err(|_| ApiError::bad_request("the form is malformed: a field is not UTF-8"))
    }
}

fn malformed(error: &multer::Error) -> ApiError {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    ApiError::bad_request(format!("the form is malformed: {error}{cause}"))
}

fn stalled() -> ApiError {
    let message = "the upload stalled for 60 seconds";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "deadline_exceeded", message, "send it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use futures_util::stream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A form whose body arrives in these frames, and how many bytes of it were read.
    fn form(frames: impl Iterator<Item = Vec<u8>> + Send + 'static) -> (Form, Arc<AtomicUsize>) {
        let read = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&read);
        let frames = frames.map(move |frame| {
            counted.fetch_add(frame.len(), Ordering::Relaxed);
            Ok::<_, io::Error>(Bytes::from(frame))
        });
        let kind = HeaderValue::from_static("multipart/form-data; boundary=xyz");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]);
        let body = Body::from_stream(stream::iter(frames));
        (Form::new(&headers, body, Constraints::new()).unwrap(), read)
    }

    fn field(name: &str, content: &str) -> String {
        let head = format!("Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"");
        format!("--xyz\r\n{head}\r\n\r\n{content}\r\n")
    }

    async fn contents(mut form: Form) -> Result<Vec<(String, String)>, ApiError> {
        let mut all = Vec::new();
        while let Some(field) = form.next().await? {
            let name = field.file_name().unwrap_or_default().to_owned();
            all.push((name, field.text(1 << 20).await?));
        }
        Ok(all)
    }

    #[tokio::test]
    async fn a_form_is_the_same_in_frames_of_any_size() {
        let long = "\r\n--xy\r".repeat(3000);
        let text = format!(
            "preamble\r\n{}{}{}--xyz--\r\n",
            field("a", "1"),
            field("b", ""),
            field("c", &long)
        );
        let expected = [("a", "1"), ("b", ""), ("c", long.as_str())];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        for size in [1, 2, 7, 100, text.len()] {
            let frames: Vec<Vec<u8>> = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            let (form, _) = form(frames.into_iter());
            assert_eq!(contents(form).await.unwrap(), expected, "frames of {size}");
        }
    }

    /// One connection whose preamble or head never ended held 190 MiB and 24 s of processor time.
    ///
    /// Promises: T28.
    #[tokio::test]
    async fn t21_what_precedes_a_content_has_a_limit() {
        const FRAME: usize = 8 * 1024;
        let head = "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"";
        for (start, filler) in [("", b'-'), ("--xyz", b' '), (head, b'a'), ("--xyz\r\n", b'\n')] {
            let first = std::iter::once(start.as_bytes().to_vec());
            let (mut form, read) = form(first.chain(std::iter::repeat(vec![filler; FRAME])));
            let failure = form.next().await.err().expect("it never ends");
            assert_eq!(failure.status(), StatusCode::BAD_REQUEST, "{}", failure.message);
            let read = read.load(Ordering::Relaxed);
            assert!(read <= HEAD_BYTES_MAX + 2 * FRAME, "{read} bytes after {start:?}");
        }
    }

    /// Promises: T28.
    #[tokio::test]
    async fn t21_no_more_of_a_form_is_read_than_its_reader_has_taken() {
        const FRAME: usize = 4096;
        let first = std::iter::once(field("a", "").trim_end().as_bytes().to_vec());
        let rest = std::iter::repeat(vec![b'x'; FRAME]);
        let (mut form, read) = form(first.chain([b"\r\n\r\n".to_vec()]).chain(rest));
        let mut content = form.next().await.unwrap().expect("a field");
        let mut taken = 0;
        while taken < 100 * FRAME {
            taken += content.chunk().await.unwrap().expect("it never ends").len();
            let ahead = read.load(Ordering::Relaxed) - taken;
            assert!(ahead <= 3 * FRAME, "{ahead} bytes wait after {taken}");
        }
    }

    /// Promises: T28.
    #[tokio::test]
    async fn t21_fields_without_end_are_refused() {
        let endless = std::iter::repeat_with(|| field("a", "").into_bytes());
        let (form, _) = form(endless);
        let failure = contents(form).await.unwrap_err();
        assert!(failure.message.contains("more than 20000 fields"), "{}", failure.message);
    }
}
