//! Checkpoints: resumed runs, interrupted writes, and files that are none.

use crate::digits;
use crate::network::*;
use pando_base::{DType, F8Format, Tensor};
use pando_runtime::Session;
use pando_transform::Optimizer;
use pando_transform::train::{Training, job};
use std::fs;
use std::path::{Path, PathBuf};

/// A folder of its own for each test, empty.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn training() -> Training {
    Training {
        seed: 17,
        ..Training::new(Optimizer::named("adamw", &[("lr", 0.01), ("amsgrad", 1.0)]).unwrap())
    }
}

/// With dropout: what comes next depends on the random state.
fn trained() -> Session {
    session_of(&network(), &training(), |b, at| forward_with_dropout(b, at, 0.3))
}

#[test]
fn resumed_training_is_the_same_bit_for_bit() {
    let folder = folder("resume");
    let mut straight = trained();
    let expected = losses(&mut straight, 0..20, 1);
    let mut first = trained();
    let mut found = losses(&mut first, 0..10, 1);
    first.save(&folder).unwrap();
    let mut second = trained();
    losses(&mut second, 5..9, 1);
    second.load(&folder).unwrap();
    found.extend(losses(&mut second, 10..20, 1));
    assert_eq!(found, expected);
    assert_eq!(snapshot(&second), snapshot(&straight));
    // Without the random state the masks would be others.
    let mut other = trained();
    other.load(&folder).unwrap();
    other.set_state("random.seed", pando_transform::random::seed(0)).unwrap();
    assert_ne!(losses(&mut other, 10..12, 1), expected[10..12]);
}

fn stateful(state: Vec<(String, Tensor)>) -> Session {
    Session::new(Vec::new(), state, &options()).unwrap()
}

#[test]
fn every_type_is_kept() {
    let folder = folder("types");
    let types = DType::ALL.into_iter().chain([DType::F8(F8Format::F143, -3)]);
    let tensors = types.map(|dtype| (dtype.to_string(), Tensor::from_f64(dtype, [3], &[1.0, 0.0, 1.0])));
    let mut state: Vec<(String, Tensor)> = tensors.collect();
    state.push(("nothing".into(), Tensor::zeros(DType::F32, [0, 3])));
    state.push(("a \"name\" / with: äöü".into(), Tensor::scalar(DType::F32, f64::NAN)));
    let session = stateful(state.clone());
    session.save(&folder).unwrap();
    let zeros = state
        .iter()
        .map(|(name, tensor)| (name.clone(), Tensor::zeros(tensor.dtype(), tensor.shape().clone())));
    let mut other = stateful(zeros.collect());
    other.load(&folder).unwrap();
    assert_eq!(snapshot(&other), state);
}

fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Whatever an interrupted write leaves behind, the checkpoint before it is whole, and the next one cleans up.
#[test]
fn interrupted_writes_leave_the_checkpoint_whole() {
    let folder = folder("interrupted");
    let value = |x: f64| vec![("x".to_string(), Tensor::scalar(DType::F32, x))];
    stateful(value(1.0)).save(&folder).unwrap();
    stateful(value(2.0)).save(&folder).unwrap();
    assert_eq!(files(&folder), ["manifest.json", "state-2.safetensors"]);
    let loaded = || {
        let mut session = stateful(value(0.0));
        session.load(&folder).unwrap();
        session.state("x").unwrap().get_f64(0)
    };
    fs::write(folder.join("state-3.safetensors.tmp"), b"half of").unwrap();
    assert_eq!(loaded(), 2.0);
    fs::write(folder.join("state-3.safetensors"), b"all of it, and no manifest yet").unwrap();
    fs::write(folder.join("manifest.json.tmp"), b"{\"format\": \"pan").unwrap();
    fs::write(folder.join("notes.txt"), b"somebody else's").unwrap();
    assert_eq!(loaded(), 2.0);
    stateful(value(4.0)).save(&folder).unwrap();
    assert_eq!(loaded(), 4.0);
    assert_eq!(files(&folder), ["manifest.json", "notes.txt", "state-4.safetensors"]);
}

/// A folder that cannot be written to: one sentence, and the old checkpoint.
#[test]
fn failed_writes_say_so() {
    let folder = folder("failed");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("file");
    fs::write(&file, b"").unwrap();
    let error = stateful(Vec::new()).save(&file).unwrap_err().to_string();
    assert!(error.contains("the checkpoint could not be written ("), "{error}");
    assert!(error.ends_with("; an earlier one is as it was"), "{error}");
    // The manifest's place is taken by a folder.
    fs::create_dir_all(folder.join("manifest.json")).unwrap();
    assert!(stateful(Vec::new()).save(&folder).is_err());
}

/// Loads a damaged checkpoint: the error's text after the file, and nothing has changed.
fn load_error(folder: &Path, session: &mut Session) -> String {
    let before = snapshot(session);
    let error = session.load(folder).unwrap_err();
    assert_eq!(snapshot(session), before);
    assert!(error.file().unwrap().contains(folder.file_name().unwrap().to_str().unwrap()));
    error.message().to_string()
}

#[test]
fn damaged_and_foreign_checkpoints_are_refused() {
    let folder = folder("damaged");
    let mut session = trained();
    assert!(load_error(&folder, &mut session).starts_with("no checkpoint can be read here ("));
    session.save(&folder).unwrap();
    let tensors = folder.join("state-1.safetensors");
    let (manifest, whole) = (folder.join("manifest.json"), fs::read(&tensors).unwrap());
    let text = fs::read_to_string(&manifest).unwrap();
    let mut with_tensors = |bytes: &[u8]| {
        fs::write(&tensors, bytes).unwrap();
        load_error(&folder, &mut session)
    };
    for length in [0, 7, 100, whole.len() - 1] {
        let error = with_tensors(&whole[..length]);
        assert!(error.starts_with("the checkpoint is damaged ("), "{error}");
        assert!(error.ends_with("; use another one"), "{error}");
    }
    assert!(with_tensors(&[0xff; 4096]).starts_with("the checkpoint is damaged ("));
    fs::remove_file(&tensors).unwrap();
    assert!(load_error(&folder, &mut session).starts_with("the checkpoint is damaged ("));
    fs::write(&tensors, &whole).unwrap();
    let mut with_manifest = |text: &str| {
        fs::write(&manifest, text).unwrap();
        load_error(&folder, &mut session)
    };
    assert!(with_manifest("").starts_with("this is no manifest of a checkpoint ("));
    assert!(with_manifest(&text[..text.len() / 2]).starts_with("this is no manifest of a checkpoint ("));
    assert_eq!(
        with_manifest(&text.replace("pando checkpoint", "other")),
        "this is no manifest of a checkpoint (its format is 'other')"
    );
    assert_eq!(
        with_manifest(&text.replace("\"version\": 1", "\"version\": 2")),
        "the checkpoint has format 2, this version reads 1; use the version of pando that wrote it"
    );
    assert!(with_manifest(&text.replace("\"programs\"", "\"progams\"")).contains("unknown field `progams`"));
    assert_eq!(
        with_manifest(&text.replace("state-1", "../state-1")),
        "this is no manifest of a checkpoint ('../state-1.safetensors' is no file in its folder)"
    );
    assert_eq!(
        with_manifest(&text.replace("\"out.bias\"", "\"out.bies\"")),
        "the checkpoint lacks the state 'out.bias'; load a checkpoint of the same training job"
    );
    assert_eq!(
        with_manifest(&text.replacen("f32[4]", "f32[5]", 1)),
        "the state 'out.bias' is f32[5] in the checkpoint and f32[4] in this session"
    );
    fs::write(&manifest, &text).unwrap();
    session.load(&folder).unwrap();
}

/// The manifest says one thing and the file another.
#[test]
fn tensors_must_be_what_the_manifest_says() {
    let folder = folder("swapped");
    let save = |name: &str, tensor: Tensor| stateful(vec![(name.into(), tensor)]).save(&folder).unwrap();
    save("x", Tensor::zeros(DType::F32, [2]));
    let text = fs::read_to_string(folder.join("manifest.json")).unwrap();
    let mut session = stateful(vec![("x".into(), Tensor::zeros(DType::F32, [2]))]);
    let mut check = |expect: &str| {
        fs::write(folder.join("manifest.json"), text.replace("state-1", "state-2")).unwrap();
        assert_eq!(load_error(&folder, &mut session), expect);
        let _ = fs::remove_file(folder.join("state-2.safetensors"));
        fs::write(folder.join("manifest.json"), &text).unwrap();
        fs::write(folder.join("state-1.safetensors"), b"").unwrap();
    };
    save("y", Tensor::zeros(DType::F32, [2]));
    check("the checkpoint is damaged (it has no tensor 'x'); use another one");
    save("x", Tensor::zeros(DType::I32, [2]));
    check("the checkpoint is damaged ('x' is I32[2], f32[2] in the manifest); use another one");
    save("x", Tensor::zeros(DType::F32, [3]));
    check("the checkpoint is damaged ('x' is F32[3], f32[2] in the manifest); use another one");
}

/// Any byte of either file: what it was, or a refusal; never other numbers.
#[test]
fn no_changed_byte_passes() {
    let folder = folder("bytes");
    let mut session = trained();
    losses(&mut session, 0..2, 1);
    session.save(&folder).unwrap();
    let state = snapshot(&session);
    let mut refused = 0;
    for file in ["manifest.json", "state-1.safetensors"] {
        let whole = fs::read(folder.join(file)).unwrap();
        for draw in 0..400 {
            let mut bytes = whole.clone();
            let at = pando_base::random::bits(1, draw) as usize % bytes.len();
            bytes[at] ^= 1 << (pando_base::random::bits(2, draw) % 8);
            fs::write(folder.join(file), &bytes).unwrap();
            refused += usize::from(session.load(&folder).is_err());
            assert_eq!(snapshot(&session), state, "byte {at} of {file}");
        }
        fs::write(folder.join(file), &whole).unwrap();
    }
    assert!(refused > 700, "{refused}");
    session.load(&folder).unwrap();
}

/// The example reads digits, before and after its stop.
#[test]
fn the_example_learns() {
    let folder = folder("example");
    let accuracy = digits::train(&folder).unwrap();
    assert!(accuracy > 0.9, "{accuracy}");
    assert_eq!(files(&folder), ["manifest.json", "state-1.safetensors"]);
}

/// Weights out of a checkpoint of a training job, for a session that only evaluates.
#[test]
fn part_of_a_checkpoint() {
    let folder = folder("part");
    let mut session = trained();
    losses(&mut session, 0..3, 1);
    session.save(&folder).unwrap();
    let job = job(&network(), &training(), forward).unwrap();
    let eval = job.programs.into_iter().filter(|(name, _)| name == "eval").collect();
    let state =
        network().weights.into_iter().chain([("random.seed".into(), pando_transform::random::seed(0))]);
    let mut evaluation = Session::new(eval, state.collect(), &options()).unwrap();
    let error = load_error(&folder, &mut evaluation);
    assert!(error.starts_with("the checkpoint has state unknown here, 'hidden.weight.exp_avg', "), "{error}");
    assert!(error.ends_with("; `load_part` takes what this session has and leaves the rest"), "{error}");
    evaluation.load_part(&folder).unwrap();
    let inputs = batch(3);
    let inputs = inputs.each_ref().map(pando_runtime::Input::from);
    assert_eq!(evaluation.evaluate(&inputs).unwrap(), session.evaluate(&inputs).unwrap());
}
